"""From the pods that end follows how long a pod without room waits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.caches.departures import Departures
from extender.cluster.objects.gpu_pods import read_gpu_pod
from extender.cluster.objects.kinds import PodCondition
from tests.extender.builders import pod
from tests.extender.mig import slice_pod
from tests.extender.shares import sharer

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
    assert departures.expected_wait_seconds((4, 0, 0), 0.0, USUAL) == USUAL
    departures.listen(0.0)
    assert departures.expected_wait_seconds((4, 0, 0), 0.0, USUAL) == USUAL


@pytest.mark.parametrize(("gpus", "departures_that_count"), [(1, 3), (2, 2), (4, 1), (8, 0)])
def test_pods_count_that_give_back_as_many_gpus(gpus: int, departures_that_count: int) -> None:
    """Three pods of 1, 2 and 4 GPUs end within 20 minutes."""
    departures = Departures()
    departures.listen(0.0)
    for count in (1, 2, 4):
        ended(departures, f"p{count}", count)
    departures.listen(1200.0)
    assert departures.expected_wait_seconds((gpus, 0, 0), 1200.0, USUAL) == 1800.0 / (departures_that_count + 1)


@pytest.mark.parametrize(
    ("size", "departures_that_count"), [((0, 0, 10), 3), ((0, 0, 30), 2), ((0, 0, 9999), 2), ((0, 1, 0), 1)]
)
def test_whole_gpus_make_room_for_shares_and_slices_for_slices_alone(
    size: tuple[int, int, int], departures_that_count: int
) -> None:
    """A GPU, a slice, and shares of 10 and 2,000 GiB are given back. Shares beyond all memory count alike."""
    departures = Departures()
    departures.listen(0.0)
    ended(departures, "whole", 1)
    for item in (slice_pod("slice", "1g.10gb", on="n1"), sharer("small", 10, on="n1"), sharer("large", 2000, on="n1")):
        departures.take(item.metadata.uid, read_gpu_pod(item))
        departures.take(item.metadata.uid, None)
    departures.listen(1200.0)
    assert departures.expected_wait_seconds(size, 1200.0, USUAL) == 1800.0 / (departures_that_count + 1)


def test_evictions_do_not_count_nor_what_is_older_than_an_hour() -> None:
    """Nobody knows when evicted pods would have gone by themselves."""
    departures = Departures()
    departures.listen(0.0)
    ended(departures, "moved", 4, evicted=True)
    ended(departures, "old", 4)
    departures.listen(100.0)
    assert departures.expected_wait_seconds((4, 0, 0), 600.0, USUAL) == 600.0
    departures.listen(3900.0)
    assert departures.expected_wait_seconds((4, 0, 0), 3900.0, USUAL) == 4200.0


def test_departures_of_many_sizes_are_looked_through_once() -> None:
    """Tenants may choose another size for each pod, and the next minute the same ones again."""
    departures, minutes = Departures(), 30
    departures.listen(0.0)
    for minute in range(1, minutes + 1):
        for gib in (*range(1, 40), 10**6 + minute):
            item = sharer(f"p{gib}", gib, on="n1")
            departures.take(item.metadata.uid, read_gpu_pod(item))
            departures.take(item.metadata.uid, None)
        departures.listen(60.0 * minute)
    now = 60.0 * minutes
    assert len(departures._ended) == 40
    assert departures.expected_wait_seconds((0, 0, 39), now, USUAL) == (now + USUAL) / (2 * minutes + 1)
