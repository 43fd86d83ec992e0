"""Simulated agents: each tells of the GPUs of its node what people say of them, and serves metrics of what they do.

- One watch feeds them all. An agent writes its node's status when `kubectl gputopo cordon-gpu` has changed what is said of GPUs.
- A GPU that a pod holds is busy, and the others are idle. Every fourth pod does next to nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self
from zlib import crc32

import aiohttp
import structlog
from aiohttp import web

from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json, RequestRefused
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.overrides import Override, Word, decode_overrides
from topology.annotations.records import decode_observed
from topology.annotations.status_codec import decode_status, encode_status
from topology.errors import PayloadError
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

_NODES: Final = "/api/v1/nodes"
_LOOK_SECONDS: Final = 5.0
"""Between two looks at cordons that end by themselves."""
_RETRY_SECONDS: Final = 0.2
_FAILURES = (RequestRefused, aiohttp.ClientError, TimeoutError)

log = structlog.get_logger(__name__)


class Agents:
    """The agents of some nodes, at work for as long as the context is open.

    Args:
        client: Of the cluster.
        nodes: Their names.
        address: Where they serve metrics, each on a port of its own; empty: nowhere.

    """

    def __init__(self, client: ApiClient, nodes: Iterable[str], address: str) -> None:
        self.ports: dict[str, int] = {}
        """Node → port of the metrics."""
        self._client = client
        self._names = tuple(nodes)
        self._address = address
        self._nodes: dict[str, Json] = {}
        self._stack = AsyncExitStack()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._version = await self._list()
        await self._tell()
        if self._address:
            for name in self._names:
                self.ports[name] = await self._serve(name)
        self._tasks = [asyncio.create_task(work) for work in (self._follow(), self._keep_telling())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _list(self) -> str:
        nodes = (await self._client.call("GET", _NODES)).ok()
        self._nodes = {node["metadata"]["name"]: node for node in nodes["items"]}
        return str(nodes["metadata"]["resourceVersion"])

    async def _follow(self) -> None:
        """Keep the nodes as the API server has them, whatever becomes of the watch."""
        while True:
            try:
                async with aclosing(self._client.watch(_NODES, resourceVersion=self._version)) as events:
                    async for kind, node in events:
                        if kind == "ERROR":
                            break
                        self._version = node["metadata"]["resourceVersion"]
                        self._nodes[node["metadata"]["name"]] = node
                        self._changed.set()
                self._version = await self._list()
            except _FAILURES as failure:
                log.warning("nodes cannot be followed", error=str(failure))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _keep_telling(self) -> None:
        while True:
            with suppress(TimeoutError):  # a cordon may have ended
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._tell()
            except _FAILURES as failure:
                log.warning("nodes cannot be told of", error=str(failure))

    async def _tell(self) -> None:
        """Write the status of the nodes of which there is something new."""
        for name in self._names:
            text = status_of(self._nodes[name], time.time())
            if text is not None:
                patch = {"metadata": {"annotations": {keys.STATUS: text}}}
                answer = await self._client.call("PATCH", f"{_NODES}/{name}", patch, content_type=MERGE_PATCH)
                self._nodes[name] = answer.ok()

    async def _serve(self, name: str) -> int:
        async def metrics(_: web.Request) -> web.Response:
            return web.Response(text=exposition(self._nodes[name]))

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        runner = web.AppRunner(app)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, self._address, 0).start()
        port: int = runner.addresses[0][1]
        return port


def status_of(node: Json, now: float) -> str | None:
    """Return what an agent writes about its node's GPUs; `None` where that is written already."""
    annotations = node["metadata"]["annotations"]
    before = decode_status(annotations[keys.STATUS])
    try:
        said = decode_overrides(annotations[keys.GPU_HEALTH]) if keys.GPU_HEALTH in annotations else {}
    except PayloadError:
        return None
    after = replace(
        before,
        gpus=tuple(_with_override(gpu, said.get(gpu.uuid), now) for gpu in before.gpus),
        device_plugin=before.device_plugin or DevicePluginStatus(Mode.ENFORCE, ready=True),
        agent_version=version("gputopo"),
    )
    return None if after == before else encode_status(_next(after))


def _next(status: NodeGpuStatus) -> NodeGpuStatus:
    return replace(status, generation=status.generation + 1)


def _with_override(gpu: GpuStatus, said: Override | None, now: float) -> GpuStatus:
    is_cordoned = said is not None and said.word is Word.CORDONED and (said.until is None or said.until > now)
    return replace(gpu, healthy=not is_cordoned, reasons=(str(said),) if is_cordoned else ())


def exposition(node: Json) -> str:
    """Return the metrics of a node's GPUs."""
    return "\n".join([*_lines(node), ""])


def _lines(node: Json) -> Iterator[str]:
    annotations = node["metadata"]["annotations"]
    held = decode_observed(annotations[keys.OBSERVED]).gpus
    for gpu in decode_topology(annotations[keys.TOPOLOGY]).gpus:
        holder, total = held.get(gpu.uuid), gpu.memory_bytes or 0
        is_busy = holder is not None and crc32(holder.name.encode()) % 4 != 0
        figures = {
            "utilization_ratio": 0.93 if is_busy else 0.0,
            "memory_used_bytes": total * (3 if is_busy else 1 if holder else 0) // 4,
            "memory_total_bytes": total,
            "power_watts": 320 if is_busy else 60,
            "temperature_celsius": 66 if is_busy else 34,
        }
        yield from (f'gputopo_gpu_{name}{{uuid="{gpu.uuid}"}} {value}' for name, value in figures.items())
