"""Lets one thing after the other happen, until the calm, and starts again what has died."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from tests.simulation.disturbances.nodes import NodeDisturbances
from tests.simulation.disturbances.pods import PodDisturbances
from tests.simulation.disturbances.processes import ProcessDisturbances
from tests.simulation.mix import CUT, EVENTS, NOMINATED
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.world.process import Process
from tests.simulation.world.server import Server
from tests.simulation.world.site import Site
from tests.world.faults import AnyFault, Fault

_RESTART_SECONDS = 4.0
_NEW_PODS_RATIO = 0.4
"""Of what happens; the rest are the events, by weight."""
_BAD_LUCK = (Fault.GPU_SICK, Fault.GPU_SICK, Fault.POD_PATCHED, Fault.POD_DELETED, Fault.KILLED)


class Disturbances:
    """All that the mix of the run has in store; what cannot be done just now is passed over."""

    def __init__(
        self,
        server: Server,
        sites: Sequence[Site],
        replicas: Sequence[Process],
        storm: Storm,
        trace: Trace,
        random: Random,
    ) -> None:
        self._sites = sites
        self._replicas = replicas
        self._storm = storm
        self._trace = trace
        self._random = random
        self._pods = PodDisturbances(
            server,
            random,
            gpus_per_node=len(sites[0].hardware.gpus),
            share_ratio=storm.mix.share_ratio,
            slice_ratio=storm.mix.slice_ratio,
            queued_ratio=storm.mix.queued_ratio,
            owned_ratio=storm.mix.owned_ratio,
        )
        self._events = {
            **ProcessDisturbances(server, replicas, random).events,
            **self._pods.events,
            **NodeDisturbances(server, sites, replicas, random).events,
        }

    async def run(self) -> None:
        """Let things happen until the calm."""
        events = [*EVENTS, *NOMINATED, *CUT]
        weights = [self._storm.mix.rates.get(event, 0.0) for event in events]
        while True:
            await self._storm.sleep(self._random.expovariate(1 / self._storm.mix.event_seconds))
            if self._storm.is_over:
                return
            if self._random.random() < _NEW_PODS_RATIO:
                self._pods.create()
            elif any(weights):
                self._happen(self._random.choices(events, weights)[0])

    def begin(self) -> None:
        """Create the first pods."""
        for _ in range(self._random.randint(1, 4)):
            self._pods.create()

    def coincide(self) -> None:
        """Let something happen soon to what is just being decided; bad luck comes in pairs."""
        if self._random.random() < 0.5:
            event = self._random.choice(_BAD_LUCK)
            asyncio.get_running_loop().call_later(self._random.uniform(0.0, 1.0), self._happen, event)

    async def restart_processes(self) -> None:
        """Start again whatever has died, after a while, for ever."""
        while True:
            await asyncio.sleep(self._random.uniform(0.2, _RESTART_SECONDS))
            for process in self._replicas:
                if process.extender is None:
                    await process.start()

    def end(self) -> None:
        """Undo what would outlast the storm: sick GPUs, and the long pauses of agents that have failed often."""
        for site in self._sites:
            site.hardware.sick.clear()
            site.agent.restart()

    def _happen(self, event: AnyFault) -> None:
        told = None if self._storm.is_over else self._events[event]()
        if told is not None:
            self._trace.fault(event, "around us", told)
