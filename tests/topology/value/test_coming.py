"""What of the pods to come a node meets that shares GPUs, or has GPUs that only some pods can use."""

from __future__ import annotations

from topology.value.coming import PodsToCome
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind

TEN_GIB = PodKind(1, memory_gib=10)
WHOLE = PodKind(1)
LEFT = FreeCapacity((600, 300, 1000), 0)


def test_a_share_is_the_larger_part_of_a_smaller_gpu() -> None:
    """Rounded up, as what is left is rounded down."""
    coming = PodsToCome([(TEN_GIB, 1.0)], {"l4": 8, "h100": 8})
    for share_gib, milli in ((78, 129), (22, 455)):
        assert coming.at("l4", share_gib).value(LEFT) == DemandProfile([(PodKind(1, milli), 1.0)]).value(LEFT)


def test_a_share_that_a_gpu_is_too_small_for_does_not_come_there() -> None:
    """What does come is all that comes."""
    coming = PodsToCome([(TEN_GIB, 0.5), (WHOLE, 0.5)], {"t4": 8})
    assert coming.at("t4", 9).value(LEFT) == DemandProfile([(WHOLE, 1.0)]).value(LEFT)


def test_pods_that_name_models_come_to_these_by_pattern() -> None:
    """And the oftener, the fewer these are."""
    coming = PodsToCome([(PodKind(1, 500, models=("*h100*",)), 0.5), (WHOLE, 0.5)], {"NVIDIA H100": 4, "T4": 8})
    choosy = [(PodKind(1, 500), 0.75), (WHOLE, 0.25)]
    assert coming.at("NVIDIA H100", 78).value(LEFT) == DemandProfile(choosy).value(LEFT)
    assert coming.at("T4", 14).value(LEFT) == DemandProfile([(WHOLE, 1.0)]).value(LEFT)
