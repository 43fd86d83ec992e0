"""What jobs that queue for a cluster experience under a policy: times, bandwidths, and what their waiting was for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.engine import Discipline, Finished, JobRefused, Moved, RunTime, Started, simulate
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import PlacementPolicy
from benchmarks.placement.rows import mean, mean_by_weight, quantile, quantile_by_weight
from benchmarks.placement.scenarios.idleness import idle_while_wanted_pct
from benchmarks.placement.speed import SpeedModel

HOUR_S = 3600.0
SLOWED = 1.1
LARGE_GPUS = 8
"""A job of so many GPUs or more is large: it needs a whole machine of those that are common."""


@dataclass(frozen=True, slots=True)
class QueueingOutcome:
    """What became of the jobs of one run."""

    started: tuple[Started, ...]
    ended: Mapping[int, float]
    """Number of a job → when it ended."""
    moved: tuple[Moved, ...]
    refused: int
    gpus: int
    """Of the cluster."""
    begin_s: float
    end_s: float
    free_gpus: FreeGpus


def run_queue(
    jobs: Sequence[Job],
    cluster: Cluster,
    policy: PlacementPolicy,
    run_time: RunTime,
    discipline: Discipline = Discipline.SKIP,
) -> QueueingOutcome:
    """Run the jobs to their end."""
    free_gpus = FreeGpus(cluster.gpus)
    started: list[Started] = []
    ended: dict[int, float] = {}
    moved: list[Moved] = []
    refused = 0
    begin_s = end_s = jobs[0].arrival_s if jobs else 0.0
    for event in simulate(jobs, cluster, policy, discipline, run_time):
        if isinstance(event, Started):
            started.append(event)
            free_gpus.change(event.time_s, -event.job.gpus)
        elif isinstance(event, Finished):
            free_gpus.change(event.time_s, event.started.job.gpus)
            ended[event.started.job.number] = end_s = event.time_s
        elif isinstance(event, Moved):
            moved.append(event)
        elif isinstance(event, JobRefused):
            refused += 1
    return QueueingOutcome(tuple(started), ended, tuple(moved), refused, cluster.gpus, begin_s, end_s, free_gpus)


def times(outcome: QueueingOutcome) -> dict[str, float]:
    """Return completion, waiting and slow-down; hours, and the job's whole time over its best run time.

    The run time of a job that was moved has what it did again.

    `wait_for_shape_h_mean` is the part of the waiting during which as many GPUs were free as the job requests.
    `wait_single_h_mean`, `_middle_` and `_large_` are the waiting of jobs of one GPU, of a few, and of large jobs. They
    are NaN where there are none. `jct_by_gpu_h_*` count a job once for each of its GPUs.
    """
    gpus = [event.job.gpus for event in outcome.started]
    ran_s = {event.job.number: outcome.ended[event.job.number] - event.time_s for event in outcome.started}
    run = [ran_s[event.job.number] for event in outcome.started]
    wait = [event.time_s - event.job.arrival_s for event in outcome.started]
    # A minute at least: else the wait of jobs of one second is all that the mean tells of.
    best = [max(event.job.service_s, 60.0) for event in outcome.started]
    found = {
        "jct_h": [(r + w) / HOUR_S for r, w in zip(run, wait, strict=True)],
        "wait_h": [w / HOUR_S for w in wait],
        "slow_down": [(r + w) / b for r, w, b in zip(run, wait, best, strict=True)],
    }
    for_shape = (
        outcome.free_gpus.seconds(event.job.gpus, event.job.arrival_s, event.time_s) / HOUR_S
        for event in outcome.started
    )
    waits = [*zip(gpus, found["wait_h"], strict=True)]
    return {
        **{f"{name}_{word}": value for name, values in found.items() for word, value in _summary(values)},
        "jct_by_gpu_h_mean": mean_by_weight(found["jct_h"], gpus),
        "jct_by_gpu_h_p95": quantile_by_weight(found["jct_h"], gpus, 0.95),
        "wait_for_shape_h_mean": mean(for_shape),
        "wait_single_h_mean": mean(hours for size, hours in waits if size == 1),
        "wait_middle_h_mean": mean(hours for size, hours in waits if 1 < size < LARGE_GPUS),
        "wait_large_h_mean": mean(hours for size, hours in waits if size >= LARGE_GPUS),
        "idle_while_wanted_pct": idle_while_wanted_pct(outcome.started, outcome.gpus, lambda job, _: ran_s[job.number]),
        "makespan_h": (outcome.end_s - outcome.begin_s) / HOUR_S,
        "refused": float(outcome.refused),
    }


def _summary(values: Sequence[float]) -> Iterable[tuple[str, float]]:
    yield "mean", mean(values)
    for percent in (50, 95, 99):
        yield f"p{percent}", quantile(values, percent / 100)


def moves(outcome: QueueingOutcome) -> dict[str, float]:
    """Return how many jobs were moved, and the GPU-hours that they did again; nothing where none was."""
    again = sum(event.move.running.job.gpus * event.again_s for event in outcome.moved)
    return {"moved": float(len(outcome.moved)), "gpu_h_again": again / HOUR_S} if outcome.moved else {}


def bandwidths(outcome: QueueingOutcome, speed: SpeedModel) -> dict[str, float]:
    """Measure jobs of two or more GPUs: predicted bandwidth over the best in an empty cluster, and what that costs them.

    Jobs that are moved count with their first place.
    """
    together = [event for event in outcome.started if event.job.gpus > 1]
    ratios = bandwidth_ratios(outcome, speed)
    slowed = [speed.slow_down(event.job, event.placed) for event in together if event.job.traffic_gb_per_s]
    return {
        "bandwidth_ratio_mean": mean(ratios),
        "bandwidth_ratio_p5": quantile(ratios, 0.05),
        "run_slow_down_mean": mean(slowed) if slowed else 1.0,
        "slowed_jobs_ratio": mean(float(found > SLOWED) for found in slowed) if slowed else 0.0,
        "nodes_mean": mean(float(len({found.node for found in event.placed})) for event in together),
    }


def bandwidth_ratios(outcome: QueueingOutcome, speed: SpeedModel) -> list[float]:
    """Return, for each job of two or more GPUs, its bandwidth over the best in an empty cluster."""
    together = [event for event in outcome.started if event.job.gpus > 1]
    return [_ratio(speed.bandwidth(event.placed), speed.best_bandwidth(event.job)) for event in together]


def started_at_once_pct(outcome: QueueingOutcome) -> float:
    """Return how many of the jobs did not wait at all."""
    return 100 * mean(float(event.time_s == event.job.arrival_s) for event in outcome.started)


def waits_h(outcome: QueueingOutcome) -> list[float]:
    """Return how long each job waited, in hours."""
    return [(event.time_s - event.job.arrival_s) / HOUR_S for event in outcome.started]


def _ratio(got: float, best: float) -> float:
    return 1.0 if best == inf else got / best


class FreeGpus:
    """For how long there were as many GPUs free as a job asks for, though not in its shape."""

    def __init__(self, gpus: int) -> None:
        self._times = [-inf]
        self._free = [gpus]
        """From each time on."""
        self._seconds: dict[int, list[float]] = {}
        """Up to each time, by size; of sizes that were asked about since the last change."""

    def change(self, time_s: float, gpus: int) -> None:
        """Take note that so many GPUs are freed, or taken where negative."""
        self._times.append(time_s)
        self._free.append(self._free[-1] + gpus)
        self._seconds.clear()

    def seconds(self, size: int, begin_s: float, end_s: float) -> float:
        """Return for how long in that time at least `size` GPUs were free."""
        return self._until(size, end_s) - self._until(size, begin_s)

    def _until(self, size: int, time_s: float) -> float:
        """Return the seconds up to a moment; between two changes the free GPUs are those after the first."""
        place = bisect_right(self._times, time_s) - 1
        seconds = self._seconds.get(size) or self._added_up(size)
        if place + 1 >= len(seconds) or self._times[place] == -inf:
            return seconds[place]
        span = self._times[place + 1] - self._times[place]
        part = (time_s - self._times[place]) / span if span else 0.0
        return seconds[place] + part * (seconds[place + 1] - seconds[place])

    def _added_up(self, size: int) -> list[float]:
        spans = (now - before if before != -inf else 0.0 for before, now in pairwise(self._times))
        enough = (span if free >= size else 0.0 for span, free in zip(spans, self._free, strict=False))
        found = self._seconds[size] = [*accumulate(enough, initial=0.0)]
        return found
