"""The decision where GPUs may be shared and CPU counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.effort import finish
from topology.formats.catalog import machine
from topology.placement.decide import Decision, Situation, decide
from topology.placement.sharing import FRAGMENTED_GPU
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind
from topology.value.score import Weights

HALF = PodKind(1, gpu_milli=500, cpu_milli=4_000)
WHOLE = PodKind(1, cpu_milli=8_000)
PROFILE = DemandProfile([(HALF, 0.5), (WHOLE, 0.5)])
PLENTY = 512_000


def mesh() -> TopologyClass:
    topology_class = TopologyClass(machine("dgx-1v"))
    finish(topology_class.appraise(Weights(demand=((1, 0.4), (2, 0.35), (4, 0.25)))))
    return topology_class


MESH = mesh()


def share(kind: PodKind, *gpu_milli: int) -> Decision:
    return placed(kind, FreeCapacity(gpu_milli, PLENTY))


def placed(kind: PodKind, capacity: FreeCapacity) -> Decision:
    part = kind.gpu_milli if kind.shares else None
    request = replace(GpuRequest.plain(kind.gpus), gpu_milli=part, cpu_milli=kind.cpu_milli)
    return decide(Situation(MESH, capacity.free, capacity=capacity, to_come=PROFILE), request)


def test_a_share_goes_where_another_one_is() -> None:
    """GPU 6 is half taken; filling it up breaks nothing."""
    found = share(HALF, 1000, 1000, 1000, 1000, 1000, 1000, 500, 1000)
    assert isinstance(found, Placement)
    assert found.gpus == (6,)


def test_a_share_that_has_to_open_a_gpu_breaks_no_island() -> None:
    """GPUs 0 to 3 are an island, 4 is what is left of the other; 7 is too full."""
    found = share(HALF, 1000, 1000, 1000, 1000, 1000, 0, 0, 300)
    assert isinstance(found, Placement)
    assert found.gpus == (4,)


def test_of_two_begun_gpus_the_one_is_taken_that_the_others_miss_less() -> None:
    """GPU 0 has just the capacity for what is to come; it would be taken if nothing were."""
    capacity, half = FreeCapacity((700, 500, 0, 0, 0, 0, 0, 0), PLENTY), replace(GpuRequest.plain(1), gpu_milli=500)
    for to_come, taken in ((None, 0), (DemandProfile([(PodKind(1, gpu_milli=700), 1.0)]), 1)):
        found = decide(Situation(MESH, capacity.free, capacity=capacity, to_come=to_come), half)
        assert isinstance(found, Placement)
        assert found.gpus == (taken,)


@pytest.mark.parametrize(
    ("gpu_milli", "taken", "links"), [((700, 0, 0, 0, 0, 0, 0, 0), 0, False), ((0, 0, 0, 0, 0, 1000, 1000, 0), 5, True)]
)
def test_the_score_of_a_share_is_what_the_others_lose(gpu_milli: tuple[int, ...], taken: int, links: bool) -> None:
    """Of capacity, and of links only where a GPU is begun."""
    capacity = FreeCapacity(gpu_milli, PLENTY)
    found = placed(HALF, capacity)
    lost = FRAGMENTED_GPU * (PROFILE.value(capacity) - PROFILE.value(capacity.without(HALF, (taken,))))
    if links:
        lost += MESH.value_lost(capacity.free, 1 << taken)
    assert isinstance(found, Placement)
    assert (found.gpus, found.affinity, found.bandwidth) == ((taken,), None, None)
    assert found.score == pytest.approx(-MESH.weights.pods_to_come * lost)


def test_the_free_capacity_that_others_lose_is_taken_off_the_score_of_whole_gpus() -> None:
    """At the same rate as for shares."""
    capacity, taking = FreeCapacity((1000,) * 8, 40_000), PodKind(2, cpu_milli=32_000)
    found, alone = placed(taking, capacity), decide(Situation(MESH, capacity.free), GpuRequest.plain(2))
    assert isinstance(found, Placement)
    assert isinstance(alone, Placement)
    lost = PROFILE.value(capacity) - PROFILE.value(capacity.without(taking, alone.gpus))
    assert lost > 0
    assert replace(found, score=alone.score, value_lost=alone.value_lost) == alone
    assert found.value_lost == pytest.approx((alone.value_lost or 0.0) + FRAGMENTED_GPU * lost)
    assert found.score == pytest.approx(alone.score - MESH.weights.pods_to_come * FRAGMENTED_GPU * lost)


def test_a_share_that_no_gpu_has_left_is_turned_away() -> None:
    """With what removing pods could cure."""
    found = share(HALF, 400, 400, 0, 0, 0, 0, 0, 0)
    assert isinstance(found, Rejection)
    assert (found.reason, found.resolvable) == (Reason.TOO_FEW_FREE, True)


def test_whole_gpus_are_chosen_by_the_plan_alone() -> None:
    """Free capacity tells nodes apart, not the sets of one node."""
    capacity = FreeCapacity((1000, 1000, 1000, 1000, 1000, 500, 0, 1000), 40_000)
    found = placed(PodKind(4, cpu_milli=32_000), capacity)
    alone = decide(Situation(MESH, capacity.free), GpuRequest.plain(4))
    assert isinstance(found, Placement)
    assert isinstance(alone, Placement)
    assert (found.gpus, found.bandwidth) == (alone.gpus, alone.bandwidth)


def test_a_pod_goes_where_it_leaves_cpu_for_the_gpus_beside_it() -> None:
    """Two nodes with the same free GPUs; on the second the pod would take the last cores."""
    gpus = (1000, 1000, 1000, 1000, 0, 0, 0, 0)
    taking = PodKind(1, cpu_milli=20_000)
    plenty, tight = (placed(taking, FreeCapacity(gpus, cores * 1000)) for cores in (96, 24))
    assert isinstance(plenty, Placement)
    assert isinstance(tight, Placement)
    assert plenty.score > tight.score


@given(st.lists(st.integers(0, 10), min_size=8, max_size=8), st.integers(1, 9))
def test_a_share_fits_where_and_only_where_a_gpu_has_so_much_left(tenths: list[int], asked: int) -> None:
    """Whatever is taken of the others, and never more than is there."""
    found = share(PodKind(1, gpu_milli=asked * 100), *(each * 100 for each in tenths))
    assert isinstance(found, Placement) == (max(tenths) >= asked)
    if isinstance(found, Placement):
        assert tenths[found.gpus[0]] >= asked
