"""The event loop: jobs arrive, wait, start and end; what to do with those that do not fit is the discipline's to say.

Time is the trace's own. Equal times: endings first, then arrivals in the order of the trace. The loop throws no dice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import inf

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import MakesRoom, Move, Placed, PlacementPolicy, PlansQueues, Repacks, RunningJob
from benchmarks.placement.waiting import WaitingJobs


class Discipline(StrEnum):
    """What happens to a job that does not fit."""

    REFUSE = "refuse"
    """It is lost."""
    BLOCK = "block"
    """It waits, and all behind it with it."""
    SKIP = "skip"
    """It waits, and those behind it are tried, as kube-scheduler does it."""


@dataclass(frozen=True, slots=True)
class Started:
    """A job runs from now on."""

    time_s: float
    job: Job
    placed: Placed


@dataclass(frozen=True, slots=True)
class Finished:
    """A job has ended."""

    time_s: float
    started: Started


@dataclass(frozen=True, slots=True)
class Moved:
    """A job goes on elsewhere, and does part of its work again."""

    time_s: float
    move: Move
    again_s: float
    """How long that part takes on the new GPUs."""


@dataclass(frozen=True, slots=True)
class JobRefused:
    """A job is lost: it fits nowhere now, or, where jobs can wait, was still waiting when nothing was left that could end."""

    time_s: float
    job: Job


Event = Started | Moved | Finished | JobRefused
RunTime = Callable[[Job, Placed], float]
"""Seconds that a job runs on these GPUs."""


def simulate(
    jobs: Iterable[Job], cluster: Cluster, policy: PlacementPolicy, discipline: Discipline, run_time: RunTime
) -> Iterator[Event]:
    """Run all jobs to their end and yield what happens, in order of time; `jobs` rise by arrival.

    A waiting job is tried again when something has ended. Of jobs that ask for the same only the first is, since the
    answer would be the same. A policy that plans queues is shown the whole queue first, and all that arrive at one moment in it.
    A policy may move running jobs for one that arrives and finds no place, and for those that wait, whenever they are tried.
    Others move some from time to time, the first time one period after the first arrival.
    """
    return _Run(cluster, policy, discipline, run_time).events(jobs)


class _Run:
    def __init__(self, cluster: Cluster, policy: PlacementPolicy, discipline: Discipline, run_time: RunTime) -> None:
        self._cluster = cluster
        self._policy = policy
        self._discipline = discipline
        self._run_time = run_time
        self._plans = policy if isinstance(policy, PlansQueues) and discipline is Discipline.SKIP else None
        self._waiting = WaitingJobs()
        self._makes_room = policy if isinstance(policy, MakesRoom) else None
        self._repacks = policy if isinstance(policy, Repacks) else None
        self._next_pass_s = inf
        self._running: list[tuple[float, int, Started, RunningJob]] = []

    def events(self, jobs: Iterable[Job]) -> Iterator[Event]:
        blocking = self._discipline is Discipline.BLOCK
        now = 0.0
        for now, together in groupby(jobs, lambda job: job.arrival_s):
            if self._repacks and self._next_pass_s == inf:
                self._next_pass_s = now + self._repacks.period_s
            yield from self._until(now)
            if self._plans:
                for job in together:
                    self._waiting.append(job)
                yield from self._serve(now)
                continue
            for job in together:
                started = None if blocking and self._waiting else self._start(job, now)
                room = [] if started or blocking else self._make_room(job, now)
                if started is not None:
                    yield started
                elif room:
                    yield from room
                elif self._discipline is Discipline.REFUSE:
                    yield JobRefused(now, job)
                else:
                    self._waiting.append(job)
        while self._running:
            now = self._next_end_s
            yield from self._until(now)
        yield from (JobRefused(now, job) for job in self._waiting)

    def _until(self, time_s: float) -> Iterator[Event]:
        while (now := self._next_change_s) <= time_s:
            if now < self._next_end_s:
                yield from self._repack(now)
            while self._next_end_s == now:
                _, _, started, running = heappop(self._running)
                self._give_back(running.placed)
                self._policy.ended(started.job)
                yield Finished(now, started)
            if self._waiting:
                yield from self._serve(now)

    @property
    def _next_end_s(self) -> float:
        return self._running[0][0] if self._running else inf

    @property
    def _next_change_s(self) -> float:
        return min(self._next_end_s, self._next_pass_s)

    def _serve(self, now: float) -> list[Event]:
        served: list[Event] = []

        def start(job: Job) -> bool:
            started = self._start(job, now)
            if started is not None:
                served.append(started)
            return started is not None

        def make_room(job: Job) -> bool:
            room = self._make_room(job, now)
            served.extend(room)
            return bool(room)

        for job, placed in self._plans.place_queue([*self._waiting], now) if self._plans else ():
            served.append(self._begin(job, placed, now))
            self._waiting.remove(job)
        in_order = self._discipline is Discipline.BLOCK
        self._waiting.serve(start, self._cluster.may_fit, in_order=in_order)
        if self._makes_room and not in_order:
            self._waiting.serve(make_room, self._cluster.has_enough, in_order=False)
        return served

    def _start(self, job: Job, now: float) -> Started | None:
        """Start the job if it fits: the cluster holds its GPUs from then on."""
        placed = self._policy.place(job) if self._cluster.may_fit(job) else None
        return None if placed is None else self._begin(job, placed, now)

    def _begin(self, job: Job, placed: Placed, now: float) -> Started:
        for allotment in placed:
            self._cluster.take(allotment)
        started = Started(now, job, placed)
        running = RunningJob(job, placed, now)
        heappush(self._running, (now + self._run_time(job, placed), job.number, started, running))
        return started

    def _make_room(self, job: Job, now: float) -> list[Event]:
        """Start the job where the policy moves others away for it; returns what happens, nothing if it does not."""
        if self._makes_room is None:
            return []
        room = self._makes_room.make_room(job, (running for *_, running in self._running), now)
        if room is None:
            return []
        for move in room.moves:
            self._give_back(move.running.placed)
        started = self._begin(job, room.placed, now)
        return [*self._moved(room.moves, now), started]

    def _repack(self, now: float) -> list[Moved]:
        """Let the policy move jobs; returns what happens."""
        assert self._repacks is not None, "only then is there a next pass"
        self._next_pass_s = now + self._repacks.period_s
        moves = self._repacks.repack((running for *_, running in self._running), now)
        for move in moves:
            self._give_back(move.running.placed)
        return self._moved(moves, now)

    def _moved(self, moves: Sequence[Move], now: float) -> list[Moved]:
        """Let jobs that have given back their GPUs go on elsewhere."""
        by_job = {move.running.job.number: move for move in moves}
        again_s = dict[int, float]()
        for place, (end, number, first, running) in enumerate(self._running):
            if move := by_job.get(number):
                for allotment in move.placed:
                    self._cluster.take(allotment)
                slower = self._run_time(running.job, move.placed) / self._run_time(running.job, running.placed)
                again_s[number] = move.lost_s * slower
                new_end = now + (end - now) * slower + again_s[number]
                self._running[place] = new_end, number, first, RunningJob(running.job, move.placed, now)
        heapify(self._running)
        return [Moved(now, move, again_s[move.running.job.number]) for move in moves]

    def _give_back(self, placed: Placed) -> None:
        for allotment in placed:
            self._cluster.give_back(allotment)
