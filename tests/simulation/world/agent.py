"""A node's agent: the product's `Publication` on what the hardware is, and on what containers hold, as PodResources would say."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec

from agent.gpus.discovery import NodeDiscovery
from agent.node.kube import changes
from agent.node.look import Look
from agent.node.publish import Publication
from agent.node.watch import NodeVersion
from benchmarks.simulated.double.api import HttpRequest
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.world.hardware import SHARE_GIB, Hardware
from tests.simulation.world.server import Server
from tests.simulation.world.wire import Answer, Wire
from tests.world.faults import Fault
from topology.annotations import keys
from topology.node.sharing import Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, MigStrategy, Mode, NodeGpuStatus

REFRESH_SECONDS = 20.0
"""The product's 300 s would outlast the run, and with it every wait for a later report."""
_PATIENCE_SECONDS = 4.0
_HEARS = 0.3
"""How likely an agent has news of its node between two turns."""
_JSON_PATCH = "application/json-patch+json"


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
        self._known: dict[str, str] = {}
        self._heard: NodeVersion | None = None
        self._publication = Publication(random=self._random.random, refresh_seconds=REFRESH_SECONDS)

    async def run(self) -> None:
        """Look, compare, write, for ever."""
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 2.0))
            if self._publication.may_ask(self._now()):
                await self._turn()

    async def _turn(self) -> None:
        """Do as the product's `Agent.turn` does: learn what the node says, look, compare, write."""
        if not self._publication.is_known:
            await self._exchange(HttpRequest("GET", self._path, {}, "application/json", b""))
            return
        if self._random.random() < _HEARS:
            await self._hear()
        if patch := self._publication.patch(self._discovery(), self._now(), self._look(), self._heard):
            body = msgspec.json.encode(changes(self._known, patch.annotations))
            await self._exchange(HttpRequest("PATCH", self._path, {}, _JSON_PATCH, body))

    async def _hear(self) -> None:
        """Hear what the product's watch of its node would tell, now or late."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answer = await self._wire.call(HttpRequest("GET", self._path, {}, "application/json", b""))
        except (ConnectionResetError, TimeoutError):
            return
        if answer.status == 200:
            metadata = msgspec.json.decode(answer.body)["metadata"]
            look = (metadata.get("annotations") or {}).get(keys.LOOK, "")
            self._heard = NodeVersion(metadata["resourceVersion"], look)

    def _discovery(self) -> NodeDiscovery:
        sick, share_gib = self._hardware.sick, SHARE_GIB if self._storm.mix.share_ratio else None
        gpus = tuple(GpuStatus(gpu, healthy=gpu not in sick, share_gib=share_gib) for gpu in self._hardware.gpus)
        return NodeDiscovery(self._hardware.topology, NodeGpuStatus(0, gpus))

    def _look(self) -> Look:
        sharing = Sharing(self._storm.mix.shared_gpus) if self._storm.mix.share_ratio else None
        mig = MigStrategy.MIXED if self._storm.mix.slice_ratio else MigStrategy.NONE
        plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, mig=mig, sharing=sharing)
        return Look(plugin, self._hardware.holders, shared=self._hardware.sharers)

    async def _exchange(self, request: HttpRequest) -> None:
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
        if answer.status == 200:
            self._known = msgspec.json.decode(answer.body)["metadata"].get("annotations") or {}
            publication.learned(self._known, self._now())
        else:
            publication.failed(self._now())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
