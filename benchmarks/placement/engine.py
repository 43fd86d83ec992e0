"""The event loop: jobs arrive, wait, start and end; what to do with those that do not fit is the discipline's to say.

Time is the trace's own. Equal times: endings first, then arrivals in the order of the trace. The loop throws no dice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import Placed, Policy


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
    """A job runs from now on; the cluster does not hold its GPUs yet when this is told."""

    time_s: float
    job: Job
    placed: Placed


@dataclass(frozen=True, slots=True)
class Finished:
    """A job has ended."""

    time_s: float
    started: Started


@dataclass(frozen=True, slots=True)
class Refused:
    """A job is lost: it fits nowhere now, or, where jobs can wait, was still waiting when nothing was left that could end."""

    time_s: float
    job: Job


Event = Started | Finished | Refused
RunTime = Callable[[Job, Placed], float]
"""Seconds that a job runs on these GPUs."""


def simulate(
    jobs: Iterable[Job], cluster: Cluster, policy: Policy, discipline: Discipline, run_time: RunTime
) -> Iterator[Event]:
    """Run all jobs to their end and yield what happens, in order of time; `jobs` rise by arrival.

    A waiting job is tried again when something has ended. Of jobs that ask for the same only the first is, since the
    answer would be the same.
    """
    return _Run(cluster, policy, discipline, run_time).events(jobs)


class _Run:
    def __init__(self, cluster: Cluster, policy: Policy, discipline: Discipline, run_time: RunTime) -> None:
        self._cluster = cluster
        self._policy = policy
        self._discipline = discipline
        self._run_time = run_time
        self._waiting: list[Job] = []
        self._running: list[tuple[float, int, Started]] = []

    def events(self, jobs: Iterable[Job]) -> Iterator[Event]:
        for job in jobs:
            yield from self._until(job.arrival_s)
            if self._discipline is Discipline.BLOCK and self._waiting:
                self._waiting.append(job)
                continue
            started = self._try(job, job.arrival_s)
            if started is not None:
                yield from self._start(started)
            elif self._discipline is Discipline.REFUSE:
                yield Refused(job.arrival_s, job)
            else:
                self._waiting.append(job)
        now = 0.0
        while self._running:
            now = self._running[0][0]
            yield from self._until(now)
        yield from (Refused(now, job) for job in self._waiting)

    def _until(self, time_s: float) -> Iterator[Event]:
        while self._running and self._running[0][0] <= time_s:
            now = self._running[0][0]
            while self._running and self._running[0][0] == now:
                _, _, started = heappop(self._running)
                for allotment in started.placed:
                    self._cluster.give_back(allotment)
                yield Finished(now, started)
            if self._waiting:
                yield from self._serve(now)

    def _serve(self, now: float) -> Iterator[Event]:
        still: list[Job] = []
        in_vain: set[object] = set()
        for position, job in enumerate(self._waiting):
            asks = (job.pods, job.communication, job.minimal_utility)
            started = None if asks in in_vain else self._try(job, now)
            if started is not None:
                yield from self._start(started)
                continue
            if self._discipline is Discipline.BLOCK:
                still += self._waiting[position:]
                break
            in_vain.add(asks)
            still.append(job)
        self._waiting = still

    def _try(self, job: Job, now: float) -> Started | None:
        placed = self._policy.place(job) if self._cluster.has_room(job.pods) else None
        return None if placed is None else Started(now, job, placed)

    def _start(self, started: Started) -> Iterator[Event]:
        yield started
        for allotment in started.placed:
            self._cluster.take(allotment)
        end_s = started.time_s + self._run_time(started.job, started.placed)
        heappush(self._running, (end_s, started.job.number, started))
