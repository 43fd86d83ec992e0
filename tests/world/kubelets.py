"""Simulated kubelets: they start and end the pods on their nodes, let go of them, and report who holds which GPU.

- One watch feeds them all. Each node is brought to order by a task of its own, from what is known of its pods, so
  that lost or repeated events do no harm.
- A container holds the GPUs that the pod's placement annotation gives it, until it is reported terminated.
- A deleted pod runs on for a while; only when its containers are reported terminated is the object removed.
- Annotating a pod with `EXIT_CODE` makes its containers end: anybody who can reach the API may ask for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
import structlog

from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json, RequestRefused
from benchmarks.simulated.pod_life import message, next_status
from tests.world.in_thread import in_thread
from tests.world.records import record_text
from topology.annotations import keys
from topology.annotations.records import Holder, Observed, Sharer, decode_placement, encode_observed
from topology.errors import PayloadError

_PODS: Final = "/api/v1/pods"
_RETRY_SECONDS: Final = 0.2
_FAILURES = (RequestRefused, aiohttp.ClientError, msgspec.DecodeError, TimeoutError)

log = structlog.get_logger(__name__)


class Kubelets:
    """The kubelets of all nodes, at work for as long as the context is open."""

    def __init__(self, client: ApiClient, *, termination_seconds: float = 0.0) -> None:
        """Let containers run on for `termination_seconds` after their pod was deleted."""
        self._client = client
        self._termination_seconds = termination_seconds
        self._nodes: dict[str, _Kubelet] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._follow()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended  # a kubelet that died long ago is why pods did not start

    async def _follow(self) -> None:
        """Keep every node's pods as the API server has them, whatever becomes of the watch."""
        while True:
            try:
                pods = (await self._client.call("GET", _PODS)).ok()
                self._replace(pods["items"])
                await self._watch(pods["metadata"]["resourceVersion"])
            except _FAILURES as failure:
                log.warning("pods cannot be followed", error=str(failure))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _watch(self, version: str) -> None:
        """Take in every change after `version`, until the server no longer knows where we are."""
        while True:
            query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
            async with aclosing(self._client.watch(_PODS, **query)) as events:
                async for kind, item in events:
                    if kind == "ERROR":
                        return
                    version = item["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK" and (node := item["spec"].get("nodeName")):
                        self._kubelet(node).take(item, gone=kind == "DELETED")

    def _replace(self, pods: Iterable[Json]) -> None:
        for kubelet in self._nodes.values():
            kubelet.forget()
        for pod in pods:
            if node := pod["spec"].get("nodeName"):
                self._kubelet(node).take(pod)

    def _kubelet(self, node: str) -> _Kubelet:
        if node not in self._nodes:
            self._nodes[node] = _Kubelet(self._client, node, self._termination_seconds)
            self._tasks.append(asyncio.create_task(self._nodes[node].run()))
        return self._nodes[node]


class _Kubelet:
    """One node's pods, and the task that brings them to order."""

    def __init__(self, client: ApiClient, node: str, termination_seconds: float) -> None:
        self._client = client
        self._node = node
        self._termination_seconds = termination_seconds
        self._pods: dict[str, Json] = {}
        self._terminate_at: dict[str, float] = {}
        self._observed: str | None = None
        self._changed = asyncio.Event()

    def take(self, pod: Json, *, gone: bool = False) -> None:
        """Take in one version of a pod on this node; an older one than is known changes nothing."""
        uid = pod["metadata"]["uid"]
        if gone:
            self._pods.pop(uid, None)
            self._terminate_at.pop(uid, None)
        elif uid not in self._pods or _version(pod) > _version(self._pods[uid]):
            self._pods[uid] = pod
        self._changed.set()

    def forget(self) -> None:
        """Start from nothing: a list follows."""
        self._pods.clear()
        self._changed.set()

    async def run(self) -> None:
        """Bring the node to order after every change, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                for uid in list(self._pods):
                    await self._advance(uid)
                await self._report()
            except _FAILURES as failure:
                log.warning("a node cannot be brought to order yet", node=self._node, error=str(failure))
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    async def _advance(self, uid: str) -> None:
        """Take a pod as far as it can go now; what another one is about to change waits for the event."""
        while pod := self._pods.get(uid):
            may_end = self._may_terminate(pod)
            told = message(pod, next_status(pod, _now(), terminating=may_end), stopped=may_end)
            if told is None:
                return
            answer = await self._client.call(told.method, told.path, told.body, content_type=told.content_type)
            if told.method == "DELETE":
                if answer.code not in (404, 409):
                    answer.ok()
                self.take(pod, gone=True)
            elif answer.code in (404, 409, 422):
                return
            elif uid in self._pods:
                self.take(answer.ok())

    def _may_terminate(self, pod: Json) -> bool:
        """Whether a deleted pod's containers have had their time; the first question starts it."""
        if "deletionTimestamp" not in pod["metadata"]:
            return False
        loop, uid = asyncio.get_running_loop(), pod["metadata"]["uid"]
        if uid not in self._terminate_at:
            self._terminate_at[uid] = loop.time() + self._termination_seconds
            loop.call_at(self._terminate_at[uid], self._changed.set)
        return loop.time() >= self._terminate_at[uid]

    async def _report(self) -> None:
        """Write who holds which GPU to the node, if that has changed."""
        held = [found for pod in self._pods.values() for found in holders(pod)]
        shared: dict[str, list[Sharer]] = {}
        for gpu, who in held:
            if isinstance(who, Sharer):
                shared.setdefault(gpu, []).append(who)
        in_order = {gpu: tuple(sorted(of, key=lambda who: (who.name, who.container))) for gpu, of in shared.items()}
        first = {gpu: Holder(of[0].namespace, of[0].name, of[0].container) for gpu, of in in_order.items()}
        text = encode_observed(Observed(dict(held) | first, shared=in_order))
        if text == self._observed:
            return
        patch = {"metadata": {"annotations": {keys.OBSERVED: text}}}
        path = f"/api/v1/nodes/{self._node}"
        answer = await self._client.call("PATCH", path, patch, content_type=MERGE_PATCH)
        if answer.code != 404:
            answer.ok()
            self._observed = text


def holders(pod: Json) -> Iterator[tuple[str, Holder]]:
    """Yield (GPU, holder) for the running containers of a pod that has a placement; of a share a `Sharer`."""
    metadata, status = pod["metadata"], pod["status"]
    try:
        placement = decode_placement(record_text(pod) or "")
    except PayloadError:
        return
    for container in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        if "running" in container["state"]:
            who, gib = (metadata["namespace"], metadata["name"], container["name"]), placement.memory_gib
            holder = Sharer(*who, gib[container["name"]]) if container["name"] in gib else Holder(*who)
            yield from ((gpu, holder) for gpu in placement.containers.get(container["name"], ()))


@contextmanager
def running_kubelets(kubeconfig: Path, *, termination_seconds: float = 0.0) -> Iterator[None]:
    """Run the kubelets of a cluster in a thread, for callers without an event loop."""
    with in_thread("kubelets", kubeconfig, partial(Kubelets, termination_seconds=termination_seconds)):
        yield


def _version(pod: Json) -> int:
    return int(pod["metadata"]["resourceVersion"])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
