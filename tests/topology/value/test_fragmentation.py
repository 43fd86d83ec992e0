"""What a node has free beside its wires, and what that is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.value import fragmentation
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind

HALF = PodKind(1, gpu_milli=500, cpu_milli=4_000)
WHOLE = PodKind(1, cpu_milli=8_000)
PLENTY = 96_000


def capacity(*gpu_milli: int, cpu_milli: int = PLENTY) -> FreeCapacity:
    return FreeCapacity(gpu_milli, cpu_milli)


def test_a_full_node_has_nothing_to_lose() -> None:
    """Nothing is idle, so nothing is a fragment, and no cores are missing."""
    assert DemandProfile([(WHOLE, 1.0)]).value(capacity(0, 0, cpu_milli=0)) == 0


def test_what_all_pods_to_come_can_use_is_worth_most() -> None:
    """Two whole GPUs with CPU to spare, wanted by all."""
    assert DemandProfile([(WHOLE, 1.0)]).value(capacity(1000, 1000)) == 0


def test_fragments_count_by_who_cannot_use_them() -> None:
    """Of 300 milli nobody can use any; of 500 those pods that want half a GPU can."""
    profile = DemandProfile([(WHOLE, 0.25), (HALF, 0.75)])
    assert profile.value(capacity(300)) == -0.3
    assert profile.value(capacity(500)) == -0.5 * 0.25


@pytest.mark.parametrize(("left", "filled"), [(490, 320), (640, 640), (810, 640), (1000, 960)])
def test_what_pods_of_a_kind_leave_over_of_a_shared_gpu_is_a_fragment(left: int, filled: int) -> None:
    """Thirds that do not quite fill a GPU, as often as they fit."""
    third = PodKind(1, gpu_milli=320)
    assert DemandProfile([(third, 1.0)]).value(capacity(left)) == (filled - left) / 1000


def test_gpus_without_cpu_are_worth_less_before_the_cpu_is_gone() -> None:
    """There is enough for two of four GPUs, so two count as lost, though a pod of one would still find a place."""
    assert DemandProfile([(WHOLE, 1.0)]).value(capacity(1000, 1000, 1000, 1000, cpu_milli=2 * WHOLE.cpu_milli)) == -2


def test_cpu_is_missed_for_the_gpus_that_are_idle_and_for_no_others() -> None:
    """A pod of four with twelve cores for each finds too few GPUs on half a machine; that is for the links to say."""
    profile = DemandProfile([(PodKind(4, cpu_milli=48_000), 1.0)])
    assert profile.value(capacity(1000, 1000, 0, 0, cpu_milli=24_000)) == 0
    assert round(profile.value(capacity(1000, 1000, 0, 0, cpu_milli=23_000)), 9) == round(-2 - 2 / 24, 9)


MILLI = st.lists(st.integers(0, 10).map(lambda tenths: tenths * 100), min_size=1, max_size=8)


@pytest.mark.slow
@given(MILLI, st.integers(0, PLENTY), st.integers(1, 10))
def test_free_capacity_is_never_worth_more_than_none_and_never_less_than_all_that_is_idle_twice(
    gpu_milli: list[int], cpu_milli: int, tenths: int
) -> None:
    """Whatever the pods to come are like: as fragments, and for want of CPU."""
    profile = DemandProfile([(PodKind(1, gpu_milli=tenths * 100, cpu_milli=2_000), 0.5), (WHOLE, 0.5)])
    idle = sum(gpu_milli) / 1000
    assert -2 * idle - 1e-9 <= profile.value(capacity(*gpu_milli, cpu_milli=cpu_milli)) <= 1e-9


@pytest.mark.slow
@given(MILLI, st.integers(0, PLENTY), st.permutations(range(8)))
def test_which_gpu_has_how_much_makes_no_difference(gpu_milli: list[int], cpu_milli: int, order: list[int]) -> None:
    """Links are somebody else's business."""
    shuffled = [gpu_milli[i] for i in order if i < len(gpu_milli)]
    profile = DemandProfile([(HALF, 0.6), (WHOLE, 0.4)])
    assert profile.value(capacity(*gpu_milli, cpu_milli=cpu_milli)) == profile.value(
        capacity(*shuffled, cpu_milli=cpu_milli)
    )


def test_a_value_costs_steps_for_each_kind_and_is_then_a_look_up() -> None:
    """However many pods of a kind have come."""
    costs = []
    for kinds in (10, 20):
        profile = DemandProfile([(PodKind(1, cpu_milli=1_000 + number), 1 / kinds) for number in range(kinds)])
        profile.value(capacity(600, 300))
        costs.append(profile.meter.steps)
        profile.value(capacity(300, 600, 0, cpu_milli=5_000))
        assert profile.meter.steps == costs[-1]
    assert costs[1] == 2 * costs[0] > 0


def test_what_is_left_of_gpus_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that share GPUs leave ever new remainders, and the value of each is what it was."""
    monkeypatch.setattr(fragmentation, "MAX_FILLED", 20)
    profile, fresh = (DemandProfile([(WHOLE, 0.25), (HALF, 0.75)]) for _ in range(2))
    first = profile.value(capacity(501))
    for milli in range(1, 100):
        profile.value(capacity(milli))
        assert len(profile._filled_by) <= 20
    assert profile.value(capacity(501)) == first == fresh.value(capacity(501))
