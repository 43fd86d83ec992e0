"""The two clusters that processes are tested on: the API double over HTTP (tier F), and a real control plane (tier K)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import aiohttp

from benchmarks.processes.client import ApiClient, Json, RequestRefused
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.double.server import ApiServer, FaultInjector
from benchmarks.simulated.double.store import ObjectStore, StoreChange
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import ACCOUNT
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE

UNAVAILABLE = (aiohttp.ClientError, RequestRefused, TimeoutError)
"""How a server that is away makes itself felt."""
ALL_NODES, ALL_PODS = "/api/v1/nodes", "/api/v1/pods"


class Backend(Protocol):
    """A cluster to run replicas on, and what became of its nodes and pods."""

    admin: Path
    """Kubeconfig of somebody who may do everything."""
    extender: Path
    """Kubeconfig of the extender's account."""
    events: list[Json]
    """Every change of nodes and pods since the start, as watch events."""

    async def objects(self) -> tuple[list[Json], list[Json]]:
        """Return all nodes and all pods as they are now."""


class Double:
    """The double of `benchmarks.simulated.double`, in the test's own event loop."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.store = server.store
        self.admin = self.extender = folder / "double.kubeconfig"
        self.events: list[Json] = []
        self._seen = self.store.resource_version
        write_kubeconfig(self.admin, server.url)
        self.store.subscribe(self._record)

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path, faults: FaultInjector | None = None) -> AsyncIterator[Double]:
        """Run one for as long as the context is open."""
        async with ApiServer(ObjectStore(), faults=faults, bookmark_seconds=1.0) as server:
            yield cls(server, folder)

    async def objects(self) -> tuple[list[Json], list[Json]]:
        """Return all nodes and all pods as they are now."""
        return list(self.store.list(NODES).items), list(self.store.list(PODS).items)

    def _record(self) -> None:
        for change in self.store.changes_since(self._seen):
            if change.resource in (NODES, PODS):
                self.events.append(_event(change))
        self._seen = self.store.resource_version


class Kube:
    """A real etcd and kube-apiserver, with gputopo's chart installed; lent to one test after the other."""

    def __init__(self, plane: ControlPlane, api: ApiClient) -> None:
        self.plane = plane
        self.admin = plane.kubeconfig()
        self.extender = plane.kubeconfig(ACCOUNT)
        self.events: list[Json] = []
        self._api = api

    @classmethod
    @asynccontextmanager
    async def lent(cls, plane: ControlPlane) -> AsyncIterator[Kube]:
        """Lend the control plane while it is empty, record all changes, and empty it again."""
        async with ApiClient.from_kubeconfig(plane.kubeconfig()) as api:
            backend = cls(plane, api)
            following = [asyncio.create_task(backend._follow(path)) for path in (ALL_NODES, ALL_PODS)]
            try:
                yield backend
            finally:
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)
                await asyncio.to_thread(plane.stop_schedulers)
                await asyncio.to_thread(sweep, plane.admin, [NAMESPACE])

    async def objects(self) -> tuple[list[Json], list[Json]]:
        """Return all nodes and all pods as they are now."""
        nodes, pods = [(await self._api.call("GET", path)).ok()["items"] for path in (ALL_NODES, ALL_PODS)]
        return [item | {"kind": "Node"} for item in nodes], [item | {"kind": "Pod"} for item in pods]

    async def _follow(self, path: str) -> None:
        """Record a collection from when it was empty, over restarts of the server."""
        version = str((await self._api.call("GET", path)).ok()["metadata"]["resourceVersion"])
        known: dict[str, Json] = {}
        while True:
            try:
                async for kind, item in self._api.watch(path, resourceVersion=version):
                    if kind == "ERROR":  # a server that was started anew knows no past
                        version = await self._relist(path, known)
                        break
                    version = item["metadata"]["resourceVersion"]
                    self._take(kind, item, known)
            except UNAVAILABLE:
                await asyncio.sleep(0.1)

    async def _relist(self, path: str, known: dict[str, Json]) -> str:
        """Record what is there now, and what has gone, as the changes that nobody told us."""
        found = (await self._api.call("GET", path)).ok()
        version = str(found["metadata"]["resourceVersion"])
        kind = found["kind"].removesuffix("List")
        there = {item["metadata"]["uid"]: {**item, "kind": kind} for item in found["items"]}
        for uid, item in list(known.items()):
            if uid not in there:
                metadata = item["metadata"] | {"resourceVersion": version}
                self._take("DELETED", {**item, "metadata": metadata}, known)
        for item in there.values():
            self._take("MODIFIED", item, known)
        return version

    def _take(self, kind: str, item: Json, known: dict[str, Json]) -> None:
        self.events.append({"type": kind, "object": item})
        known[item["metadata"]["uid"]] = item
        if kind == "DELETED":
            del known[item["metadata"]["uid"]]


def names(objects: Sequence[Json]) -> list[str]:
    """Return the names of objects."""
    return [item["metadata"]["name"] for item in objects]


def _event(change: StoreChange) -> Json:
    if change.after is not None:
        return {"type": "MODIFIED", "object": change.after}
    assert change.before is not None
    version = {"resourceVersion": str(change.resource_version)}
    return {"type": "DELETED", "object": {**change.before, "metadata": change.before["metadata"] | version}}
