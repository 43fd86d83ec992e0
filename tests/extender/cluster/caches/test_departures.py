"""From the pods that end follows how long a pod without room waits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.caches.departures import Departures
from extender.cluster.objects.gpu_pods import read_gpu_pod
from extender.cluster.objects.kinds import PodCondition
from tests.extender.builders import pod

USUAL = 600.0


def ended(departures: Departures, name: str, gpus: int, *, evicted: bool = False) -> None:
    """Let a pod run and go."""
    item = pod(name, gpus, on="n1")
    departures.take(name, read_gpu_pod(item))
    if evicted:
        status = replace(item.status, conditions=[PodCondition("DisruptionTarget", "True", "EvictionByEvictionAPI")])
        departures.take(name, read_gpu_pod(replace(item, status=status)))
    departures.take(name, None)


def test_the_usual_wait_counts_before_anything_is_measured() -> None:
    """What the first list shows has ended at any time, and says nothing."""
    departures = Departures()
    ended(departures, "before", 8)
    assert departures.expected_wait_seconds(4, 0.0, USUAL) == USUAL
    departures.listen(0.0)
    assert departures.expected_wait_seconds(4, 0.0, USUAL) == USUAL


@pytest.mark.parametrize(("gpus", "departures_that_count"), [(1, 3), (2, 2), (4, 1), (8, 0)])
def test_pods_count_that_give_back_as_many_gpus(gpus: int, departures_that_count: int) -> None:
    """Three pods of 1, 2 and 4 GPUs end within 20 minutes."""
    departures = Departures()
    departures.listen(0.0)
    for count in (1, 2, 4):
        ended(departures, f"p{count}", count)
    departures.listen(1200.0)
    assert departures.expected_wait_seconds(gpus, 1200.0, USUAL) == 1800.0 / (departures_that_count + 1)


def test_evictions_do_not_count_nor_what_is_older_than_an_hour() -> None:
    """Nobody knows when evicted pods would have gone by themselves."""
    departures = Departures()
    departures.listen(0.0)
    ended(departures, "moved", 4, evicted=True)
    ended(departures, "old", 4)
    departures.listen(100.0)
    assert departures.expected_wait_seconds(4, 600.0, USUAL) == 600.0
    departures.listen(3900.0)
    assert departures.expected_wait_seconds(4, 3900.0, USUAL) == 4200.0
