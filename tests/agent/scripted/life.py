"""The agent's own parts on a scripted machine, under a clock that the test moves: hours pass in a second, none by chance."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event

from agent.gpus.critical_errors import Coverage, CriticalError
from agent.gpus.facts import NvmlFacts
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.health.health_file import HealthFile
from agent.gpus.health.xid_watch import XidWatch
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.gpus.nvml.reader import read_nvml
from agent.gpus.nvml.time_limit import NvmlCalls
from agent.gpus.nvml.xid_events import follow_xids
from agent.health.node import HealthChange
from agent.health.policy import HealthPolicy
from agent.metrics import AgentMetrics
from agent.node.publish import Publication
from agent.service import Agent
from tests.agent.builders import FakeNode
from tests.nvml.script import Scripted
from tests.waiting import account
from topology.annotations import keys
from topology.annotations.status_codec import decode_status

LOOK_SECONDS = 30.0
"""`discovery.interval` as it is by default."""
_DEADLINE_SECONDS = 60.0
_NOWHERE = Path("/nonexistent")

Course = dict[str, list[tuple[float, str]]]


class Life:
    """One node: its agent looks every half minute of the script, and hears of errors as they happen."""

    def __init__(self, scripted: Scripted, folder: Path, patience_seconds: float = _DEADLINE_SECONDS) -> None:
        self.course: Course = {}
        self.looks: list[float] = []
        self._metrics = AgentMetrics("test")
        self.dead_links: list[tuple[int, float]] = []
        """How many the node says are down, and since when it does."""
        self.node = FakeNode()
        self._scripted = scripted
        self._folder = folder
        self._patience_seconds = patience_seconds
        self._now = -LOOK_SECONDS
        self._heard = 0
        self._read = Event()
        self._start()

    @property
    def timed_out(self) -> bool:
        """Whether a look did not end in time."""
        return b'gputopo_agent_discovery_failures_total{code="TIMEOUT"}' in self._metrics.text()

    def run(self, until: float, restarts: tuple[float, ...] = ()) -> Course:
        """Let the script play; return GPU → the states that it came to, each with when."""
        errors = sorted(step.at for step in self._scripted.steps if step.verb == "xid")
        next_look = 0.0
        while next_look <= until:
            self._now = min((at for at in (*errors, *restarts) if at > self._now), default=next_look)
            self._now = min(self._now, next_look)
            self._scripted.stand(self._now)
            self._wait(lambda: self._heard >= sum(at <= self._now for at in errors))
            if self._now in restarts:
                self._end()
                self._start()
            self.looks.append(self._now)
            self._agent.turn()
            self._wait(self._read.is_set)
            self._note_links()
            next_look = self._now + self._agent.interval_seconds(LOOK_SECONDS)
        self._end()
        return self.course

    def _start(self) -> None:
        self._deaf = Event()
        self._memory = HealthFile(self._folder)
        health = GpuHealth(lambda: self._now, HealthPolicy(), self._memory, "one boot", self._tell)
        machine = GpuMachine(
            partial(NvmlCalls(self._patience_seconds).call, self._look), Host(_NOWHERE, _NOWHERE), health
        )
        publication = Publication(lambda: 0.5, 300.0)
        self._agent = Agent(machine, self.node, publication, self._metrics, lambda: self._now)
        self._watch = XidWatch(self._follow, health, lambda: None)
        self._watch.start()
        self._wait(lambda: health.coverage is not None)

    def _end(self) -> None:
        self._watch.close()
        self._wait(self._deaf.is_set)
        self._memory.close()

    def _look(self) -> NvmlFacts:
        """Read, and say when that is done: calls that hang do so in seconds of ours."""
        self._read.clear()
        try:
            return read_nvml()
        finally:
            self._read.set()

    def _note_links(self) -> None:
        dead = len(decode_status(self.node.annotations[keys.STATUS]).link_faults)
        if not self.dead_links or self.dead_links[-1][0] != dead:
            self.dead_links.append((dead, self._now))

    def _tell(self, change: HealthChange, index: int | None) -> None:
        if change.before.state is not change.after.state:
            self.course.setdefault(change.gpu, []).append((self._now, change.after.state))

    def _follow(self) -> Generator[Coverage | CriticalError | None, None, None]:
        """Count the errors that were taken in."""
        try:
            with closing(follow_xids()) as told:
                for news in told:
                    yield news
                    self._heard += isinstance(news, CriticalError)
        finally:
            self._deaf.set()

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, account(condition, False, _DEADLINE_SECONDS)
            time.sleep(0.001)
