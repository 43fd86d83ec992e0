"""A node's agent: the product's `Publication` on what the hardware is, and what containers hold, as PodResources would say.

Each write counts one up and rests on the one before, so that a look of long ago, still under way, never comes after a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import msgspec

from agent.discovery import Report
from agent.publish import Publication
from benchmarks.double.api import Request
from extender.kubernetes.rest import pointer
from tests.simulation.faults import Fault
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.world.hardware import Hardware
from tests.simulation.world.server import Server
from tests.simulation.world.wire import Answer, Wire
from topology import keys
from topology.codec import decode_status, encode_status
from topology.records import encode_observed
from topology.status import GpuStatus, NodeStatus

REFRESH_SECONDS = 20.0
"""The product's 300 s would outlast the run, and with it every wait for a later report."""
_PATIENCE_SECONDS = 4.0


class Agent:
    """The agent of one node; starts anew, knowing nothing, when its node does."""

    def __init__(
        self, name: str, hardware: Hardware, server: Server, storm: Storm, trace: Trace, random: Random
    ) -> None:
        self._path = f"/api/v1/nodes/{name}"
        self._hardware = hardware
        self._storm = storm
        self._trace = trace
        self._random = random
        self._wire = Wire(f"agent-{name}", server, storm, trace, random)
        self.restart()

    def restart(self) -> None:
        """Forget what was published."""
        self._publication = Publication(random=self._random.random, refresh_seconds=REFRESH_SECONDS)
        self._published: Mapping[str, str] | None = None

    async def run(self) -> None:
        """Look, compare, write, for ever."""
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 2.0))
            if self._publication.may_ask(self._now()):
                await self._turn()

    async def _turn(self) -> None:
        if self._published is None:
            await self._exchange(Request("GET", self._path, {}, "application/json", b""))
        elif news := self._news(self._published):
            await self._exchange(
                Request("PATCH", self._path, {}, "application/json-patch+json", _patch(news, self._published))
            )

    def _news(self, published: Mapping[str, str]) -> Mapping[str, str]:
        gpus = tuple(GpuStatus(gpu, healthy=gpu not in self._hardware.sick) for gpu in self._hardware.gpus)
        report = Report(self._hardware.topology, NodeStatus(0, gpus))
        patch, observed = self._publication.patch(report, self._now()), encode_observed(self._hardware.observed)
        if observed == published.get(keys.OBSERVED):
            return patch.annotations if patch else {}
        if patch is None:
            generation = decode_status(published[keys.STATUS]).generation + 1
            return {keys.OBSERVED: observed, keys.STATUS: encode_status(replace(report.status, generation=generation))}
        return {**patch.annotations, keys.OBSERVED: observed}

    async def _exchange(self, request: Request) -> None:
        publication = self._publication
        if late := self._storm.hold(Fault.LATE_REPORT, self._random):
            self._trace.fault(Fault.LATE_REPORT, self._wire.client, f"for {late:.1f} s")
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answer = await self._wire.call(request, held_seconds=late)
        except (ConnectionResetError, TimeoutError):
            answer = Answer(0)
        if publication is not self._publication:
            return
        if answer.status != 200:
            publication.failed(self._now())
            self._published = None
            return
        self._published = msgspec.json.decode(answer.body)["metadata"].get("annotations") or {}
        publication.learned(self._published, self._now())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _patch(news: Mapping[str, str], published: Mapping[str, str]) -> bytes:
    test = {"op": "test", "path": pointer(keys.STATUS), "value": published.get(keys.STATUS)}
    return msgspec.json.encode(
        [test, *({"op": "add", "path": pointer(key), "value": text} for key, text in news.items())]
    )
