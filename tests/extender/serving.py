"""The whole extender on real sockets, against the API double, in the test's own event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer, FaultInjector
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from extender.config.document import ExtenderConfiguration
from extender.features.configuration import load
from extender.kit import traces
from extender.web.server import serve
from tests.extender.polling import eventually, until


@dataclass
class Running:
    """A served extender and what is around it."""

    url: str
    health_url: str
    api: ApiClient
    store: ObjectStore
    session: aiohttp.ClientSession
    process: asyncio.Task[None]
    """Ends when the extender has stopped, or with what it died of."""
    view_url: str = ""
    """Where the view is, if it is served."""

    async def post(self, verb: str, body: Json | bytes) -> tuple[int, Any]:
        """Call a verb as kube-scheduler does; returns status and decoded answer."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.session.post(f"{self.url}/v1/extender/{verb}", data=content) as response:
            return response.status, msgspec.json.decode(await response.read())

    async def get(self, path: str, base: str = "") -> tuple[int, str]:
        """Read a page."""
        async with self.session.get((base or self.url) + path) as response:
            return response.status, await response.text()

    async def is_ready(self) -> bool:
        """Whether it says so."""
        return (await self.get("/readyz"))[0] == 200

    async def create(self, name: str, gpus: int, annotations: Mapping[str, str] | None = None) -> Json:
        """Create a pod that nobody has scheduled."""
        made = await self.api.call(
            "POST", "/api/v1/namespaces/default/pods", gpu_pod(name, gpus, annotations, schedulerName="gputopo")
        )
        return made.ok()


async def _serve(config: ExtenderConfiguration, stop: asyncio.Event, listening: Callable[[list[str]], None]) -> None:
    with traces.started(os.environ) as sent:
        await serve(config, stop, listening, sent)


@dataclass(frozen=True, slots=True)
class Served:
    """An extender in the test's own event loop, without the API server that it works for."""

    url: str
    health_url: str
    process: asyncio.Task[None]
    """Ends when the extender has stopped, or with what it died of."""
    view_url: str = ""
    """Where the view is, if it is served."""

    async def is_ready(self) -> bool:
        """Whether it says so."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as response:
            return response.status == 200


@asynccontextmanager
async def served(
    kubeconfig: Path, settings: Mapping[str, str] | None = None, *, ready: bool = True
) -> AsyncIterator[Served]:
    """Serve an extender for the API server of a kubeconfig; a process of its own would take two seconds of CPU to start."""
    config = load(
        None,
        {},
        {
            "kubernetes.kubeconfig": str(kubeconfig),
            "listen.port": "0",
            "health.host": "127.0.0.1",
            "health.port": "0",
            "reconcile.interval": "50ms",
            **(settings or {}),
        },
    )
    stop, urls = asyncio.Event(), list[str]()
    running = asyncio.create_task(_serve(config, stop, urls.extend))
    await until(lambda: urls or running.done())
    extender = Served(urls[0], urls[1], running, *urls[2:])
    try:
        if ready:
            await eventually(extender.is_ready)
        yield extender
    finally:
        stop.set()
        await running


@asynccontextmanager
async def serving(
    folder: Path,
    *nodes: SimulatedNode,
    settings: Mapping[str, str] | None = None,
    faults: FaultInjector | None = None,
    ready: bool = True,
) -> AsyncIterator[Running]:
    """Serve an extender for a cluster of these nodes."""
    store, kubeconfig = ObjectStore(), folder / "kubeconfig"
    async with ApiServer(store, faults=faults) as server:
        write_kubeconfig(kubeconfig, server.url)
        async with ApiClient(server.url) as api, aiohttp.ClientSession() as session:
            await join(api, nodes)
            async with served(kubeconfig, settings, ready=ready) as extender:
                yield Running(
                    extender.url, extender.health_url, api, store, session, extender.process, extender.view_url
                )
