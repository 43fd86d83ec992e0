"""Lets a year pass over one node under one policy, from event to event."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import count
from random import Random

from agent.health.evidence import Back, Booted, Lost, Reloaded
from benchmarks.health.year.incidents import FleetYear, Incident
from benchmarks.health.year.kinds import Cure, IncidentKind
from benchmarks.health.year.operators import Operator
from benchmarks.health.year.policies import SimulatedHealthPolicy
from benchmarks.health.year.reckoning import GpuHourTotals

_HOUR = 3600.0
JOB_SECONDS = _HOUR
"""Mean run time of a job (assumed)."""
IDLE_SECONDS = JOB_SECONDS * (1 / 0.83 - 1)
"""Mean time until the next job comes: GPUs are in use for 83 % of the time, as in RSC-1 (arXiv 2410.21680)."""
STUCK_SECONDS = 60.0
"""Mean time until a GPU that waits for a reset has ended a job (assumed)."""


def replay(
    fleet: FleetYear,
    incidents: Mapping[int, Sequence[Incident]],
    policy: Callable[[int], SimulatedHealthPolicy],
    operator: Operator,
    seed: int,
) -> GpuHourTotals:
    """Return what the policy made of the incidents; nodes without any have all their GPUs well, and in."""
    account = GpuHourTotals()
    for node, its_own in incidents.items():
        randoms = [Random(f"{seed} {node} {gpu}") for gpu in range(fleet.gpus_per_node)]  # noqa: S311
        account.add(_Node(policy(fleet.gpus_per_node), operator, randoms).live(its_own, fleet.seconds))
    calm = (fleet.nodes - len(incidents)) * fleet.gpus_per_node
    account.spend(calm * fleet.seconds, "", is_sick=False, is_in=True)
    return account


class _Job(Enum):
    NONE = auto()
    AWAITED = auto()
    RUNS = auto()


@dataclass(slots=True)
class _Gpu:
    random: Random
    """The same for each policy: its n-th job on a sick GPU waits, runs and is hit alike."""
    sick_of: IncidentKind | None = None
    befallen_by: str = ""
    """Last, whether that made it sick or not."""
    out_by: str = ""
    """What had befallen it when it went out."""
    is_stuck: bool = False
    is_in: bool = True
    since: float = 0.0
    job: _Job = _Job.NONE
    """Followed on sick GPUs only."""
    turn: int = 0
    """Counts what has become of jobs, so that what was to become of an earlier one is passed over."""

    @property
    def passes_tests(self) -> bool:
        return self.sick_of is None or (self.sick_of.is_lemon and not self.is_stuck)


class _Node:
    def __init__(self, policy: SimulatedHealthPolicy, operator: Operator, randoms: Iterable[Random]) -> None:
        self._policy = policy
        self._operator = operator
        self._gpus = [_Gpu(random) for random in randoms]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._now = 0.0
        self._round_at = -math.inf
        self._account = GpuHourTotals()

    def live(self, incidents: Iterable[Incident], end: float) -> GpuHourTotals:
        for incident in incidents:
            self._at(incident.t, partial(self._befall, incident))
        while True:
            event = self._events[0][0] if self._events else math.inf
            change = self._policy.next_change(self._now)
            if min(event, change) >= end:
                break
            self._now = min(event, change)
            if event <= change:
                heapq.heappop(self._events)[2]()
            self._look()
        self._now = end
        for gpu in self._gpus:
            self._settle(gpu)
        return self._account

    def _at(self, t: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (t, next(self._order), what))

    def _befall(self, incident: Incident) -> None:
        kind, now = incident.kind, self._now
        for number in (incident.gpu, incident.peer):
            if number is not None:
                self._gpus[number].befallen_by = kind.name
        if kind.is_sick:
            gpu = self._gpus[incident.gpu]
            self._settle(gpu)
            gpu.sick_of = kind
            self._drop_job(gpu)
            self._at(now + self._operator.seconds_until_well(kind), partial(self._cure, incident.gpu, kind))
            if not kind.is_lemon and kind.cure is Cure.REPLACEMENT:
                self._at(now + self._operator.seconds_until_reboot(kind), self._reboot)
        self._err(incident.gpu, kind)
        if incident.peer is not None:
            self._tell(incident.peer, kind)

    def _err(self, number: int, kind: IncidentKind) -> None:
        gpu = self._gpus[number]
        if kind.is_stuck and not gpu.is_stuck:
            gpu.is_stuck = True
            self._at(self._now + self._operator.reboot, partial(self._reset, number))
        self._tell(number, kind)

    def _tell(self, number: int, kind: IncidentKind) -> None:
        for evidence in kind.told:
            self._policy.told(number, evidence, self._now)

    def _cure(self, number: int, kind: IncidentKind) -> None:
        gpu = self._gpus[number]
        if gpu.sick_of is not kind:
            return  # a reboot for another GPU's sake came first
        if kind.cure is Cure.REPLACEMENT:
            self._settle(gpu)
            gpu.sick_of, gpu.is_stuck = None, False
            self._policy.replaced(number, self._now)
        self._reboot()

    def _reboot(self) -> None:
        """Drain the node, and start it anew."""
        for number in range(len(self._gpus)):
            self._policy.told(number, Booted(), self._now)
        for number, gpu in enumerate(self._gpus):
            gpu.is_stuck = False
            self._drop_job(gpu)
            if gpu.sick_of and gpu.sick_of.cure is Cure.REBOOT:
                self._settle(gpu)
                gpu.sick_of = None
            is_lost = gpu.sick_of is not None and Lost() in gpu.sick_of.told
            self._policy.told(number, Lost() if is_lost else Back(), self._now)
        self._policy.restarted(self._now)

    def _reset(self, number: int) -> None:
        """Reset one GPU, for which programs that have it open are ended, and started again."""
        gpu = self._gpus[number]
        if gpu.is_stuck:
            gpu.is_stuck = False
            self._drop_job(gpu)
            self._policy.told(number, Reloaded(), self._now)
            self._policy.restarted(self._now)

    def _round(self) -> None:
        for number, gpu in enumerate(self._gpus):
            if not gpu.is_in and gpu.passes_tests:
                self._policy.let_in(number, self._now)

    def _await_job(self, gpu: _Gpu, number: int) -> None:
        gpu.job, gpu.turn = _Job.AWAITED, gpu.turn + 1
        self._at(self._now + gpu.random.expovariate(1 / IDLE_SECONDS), partial(self._place, number, gpu.turn))

    def _place(self, number: int, turn: int) -> None:
        gpu = self._gpus[number]
        if gpu.turn != turn or gpu.sick_of is None:
            return
        self._account.jobs_on_sick += 1
        gpu.job = _Job.RUNS
        hit = gpu.random.expovariate(1) * (STUCK_SECONDS if gpu.is_stuck else gpu.sick_of.hits_after)
        end = gpu.random.expovariate(1 / JOB_SECONDS)
        self._at(self._now + min(hit, end), partial(self._leave, number, turn, hit < end))

    def _leave(self, number: int, turn: int, is_hit: bool) -> None:
        gpu = self._gpus[number]
        if gpu.turn != turn or gpu.sick_of is None:
            return
        self._drop_job(gpu)
        if is_hit:
            self._account.end_job(gpu.sick_of.name)
            self._err(number, gpu.sick_of)

    def _drop_job(self, gpu: _Gpu) -> None:
        gpu.job, gpu.turn = _Job.NONE, gpu.turn + 1

    def _look(self) -> None:
        for number, gpu in enumerate(self._gpus):
            is_in = self._policy.takes_pods(number, self._now)
            if is_in is not gpu.is_in:
                self._settle(gpu)
                gpu.is_in, gpu.out_by = is_in, gpu.befallen_by
                self._account.taken_out += not is_in
            if gpu.sick_of and is_in and gpu.job is _Job.NONE:
                self._await_job(gpu, number)
            elif not is_in and gpu.job is _Job.AWAITED:
                self._drop_job(gpu)
        if self._round_at <= self._now and not all(gpu.is_in for gpu in self._gpus):
            self._round_at = (self._now // self._operator.round + 1) * self._operator.round
            self._at(self._round_at, self._round)

    def _settle(self, gpu: _Gpu) -> None:
        """Reckon the time since the last change."""
        kind = gpu.sick_of.name if gpu.sick_of else gpu.out_by
        self._account.spend(self._now - gpu.since, kind, is_sick=gpu.sick_of is not None, is_in=gpu.is_in)
        gpu.since = self._now
