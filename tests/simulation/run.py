"""One run: a storm in which everything may go wrong, then a calm in which everything has to come right; one seed decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog

from tests.extender.virtual_time import VirtualTimeLoop
from tests.simulation.disturbances.loop import Disturbances
from tests.simulation.invariants import convergence
from tests.simulation.invariants.conduct import Conduct
from tests.simulation.invariants.evictions import Evictions
from tests.simulation.invariants.gates import Gates
from tests.simulation.invariants.ownership import Ownership
from tests.simulation.invariants.registers import Registers
from tests.simulation.mix import Adapt, as_drawn, draw_mix
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.world.controller import Controller
from tests.simulation.world.process import Process
from tests.simulation.world.scheduler import Scheduler
from tests.simulation.world.server import Server
from tests.simulation.world.site import Site
from tests.world.faults import Fault

_SETTLE_SECONDS = 8.0
"""For the last containers to stop and the last processes to start: faults are over only then."""
_STILL_SECONDS = 3.0
"""At the end nobody writes any more, and the caches catch up."""
_RATES = (1.0, 1.0, 1.0, 0.9, 2.0)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one seed."""

    seed: int
    digest: str
    violations: tuple[str, ...]
    counters: Counter[str]
    lines: tuple[str, ...]


def run(seed: int, adapt: Adapt = as_drawn) -> Result:
    """Run one seed on a virtual clock."""
    with _silence(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_Run(seed, adapt, runner.get_loop()).play())


class _Run:
    """Everybody who takes part."""

    def __init__(self, seed: int, adapt: Adapt, loop: asyncio.AbstractEventLoop) -> None:
        self._seed = seed
        self._loop = loop
        self._trace = trace = Trace(loop.time)
        self._storm = storm = Storm(adapt(draw_mix(self._random("mix"))))
        self._server = server = Server(loop.time, trace.note)
        self._ownership = ownership = Ownership(server, trace, loop.time, storm.mix.shared_gpus)
        self._gates = Gates(server, ownership, trace)
        self._registers = Registers(server, trace, loop.time)
        mix = storm.mix
        self._evictions = Evictions(server, ownership, trace, loop.time, mix)
        self._conduct = conduct = Conduct(ownership, self._registers, self._evictions, server, trace)
        trace.note("mix", str(mix))
        self._sites = [
            Site(f"n{number}", mix.machine, server, storm, trace, ownership, self._random(f"site {number}"))
            for number in range(mix.nodes)
        ]
        self._replicas = [
            Process(f"extender-{number}", server, storm, trace, conduct, self._random(f"replica {number}"))
            for number in range(mix.replicas)
        ]
        self._schedulers = [
            Scheduler(f"scheduler-{number}", server, self._replicas, storm, trace, self._random(f"scheduler {number}"))
            for number in range(mix.schedulers)
        ]
        self._disturbances = Disturbances(
            server, self._sites, self._replicas, storm, trace, self._random("disturbances")
        )
        self._controller = Controller(server, storm, self._random("controller"))
        loop.set_exception_handler(self._take_exception)

    async def play(self) -> Result:
        """Go through storm and calm."""
        self._set_up()
        writers = [asyncio.create_task(work) for work in self._work()]
        nursing = asyncio.create_task(self._disturbances.restart_processes())
        await asyncio.sleep(self._storm.mix.storm_seconds)
        self._storm.end()
        self._disturbances.end()
        self._trace.note("storm", "calm")
        await asyncio.sleep(_SETTLE_SECONDS + convergence.PATIENCE_SECONDS - convergence.NOMINATION_SECONDS)
        nominated = convergence.standing_nominations(self._server)
        await asyncio.sleep(convergence.NOMINATION_SECONDS)
        convergence.check_nominations(self._server, nominated, self._trace)
        convergence.check_waiting(
            self._server, self._sites, self._replicas, self._ownership, self._trace, self._loop.time()
        )
        await asyncio.sleep(convergence.CLAIM_SECONDS - convergence.PATIENCE_SECONDS)
        convergence.check_claims(self._server, self._ownership, self._trace, self._loop.time())
        for task in (*writers, nursing):
            if task.done() and (died_of := task.exception()):
                self._trace.violation("LIFE", f"somebody ended before the run did: {died_of!r}")
            task.cancel()
        await asyncio.sleep(_STILL_SECONDS)
        self._gates.check()
        self._evictions.check()
        convergence.check_objects(self._server, self._ownership, self._trace)
        convergence.check_caches(self._server, self._replicas, self._trace)
        for process in self._replicas:
            process.notice_deaths()
            process.kill()
        self._registers.check()
        trace = self._trace
        return Result(self._seed, trace.digest, tuple(trace.violations), trace.counters, tuple(trace.lines))

    def _set_up(self) -> None:
        random = self._random("clocks")
        for process in self._replicas:
            process.clock.rate = random.choice(_RATES)
            if process.clock.rate != 1.0:
                self._trace.fault(Fault.CLOCK_RATE, process.name, f"{process.clock.rate}")
        if len(self._schedulers) > 1:
            self._trace.fault(Fault.RIVAL_SCHEDULER, "mix")
        for process in self._replicas:
            process.coincide = self._disturbances.coincide
        self._disturbances.begin()

    def _work(self) -> Iterator[Coroutine[Any, Any, None]]:
        for site in self._sites:
            yield site.kubelet.run()
            yield site.agent.run()
        for scheduler in self._schedulers:
            yield scheduler.run()
        yield self._disturbances.run()
        yield self._controller.run()
        yield self._conduct.watch(self._replicas)

    def _random(self, name: str) -> Random:
        return Random(f"{self._seed}/{name}")

    def _take_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._trace.violation("LIFE", f"{context['message']}: {context.get('exception')!r}")


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the product's log lines out of it; the trace tells more."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent
