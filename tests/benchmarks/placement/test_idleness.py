"""GPUs that idle while somebody waits for no more than are idle."""

from __future__ import annotations

from benchmarks.placement.cluster import Allotment
from benchmarks.placement.engine import Started
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.scenarios.idleness import idle_while_wanted_pct
from tests.benchmarks.placement.builders import job


def started(time_s: float, number: int, gpus: int, arrival_s: float, service_s: float) -> Started:
    """Return a job's start; where does not matter here."""
    return Started(time_s, job(number, gpus, arrival_s=arrival_s, service_s=service_s), (Allotment(0, (), PodSize(0)),))


def lost_pct(*events: Started) -> float:
    """Measure on eight GPUs; a job runs as long as it says."""
    return idle_while_wanted_pct(events, 8, lambda job, _: job.service_s)


LAST = started(10, 9, 1, 10, 1)
"""Nothing that comes after its arrival counts."""


def test_gpus_that_nobody_wants_are_not_lost() -> None:
    """Two are idle, and one who wants four could not use them."""
    assert lost_pct(started(0, 0, 6, 0, 8), started(8, 1, 4, 2, 5), LAST) == 0


def test_gpus_that_would_be_enough_are_lost_while_they_lie_apart() -> None:
    """Four are idle for six seconds of ten while a job of four waits: 30 % of all the GPU time."""
    assert lost_pct(started(0, 0, 4, 0, 8), started(8, 1, 4, 2, 5), LAST) == 30


def test_the_smallest_that_waits_decides() -> None:
    """One of eight waits from the beginning, one of two for half of the time; four GPUs are idle."""
    assert lost_pct(started(0, 0, 4, 0, 10), started(11, 1, 8, 0, 5), started(10, 2, 2, 5, 1), LAST) == 25


def test_what_waits_when_the_last_has_come_is_the_end_of_the_experiment() -> None:
    """Half of the GPUs idle beside a job that waits, and nobody else will ever come."""
    assert lost_pct(started(0, 0, 4, 0, 20), started(20, 1, 4, 10, 5)) == 0
