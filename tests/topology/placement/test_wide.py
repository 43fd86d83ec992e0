"""Machines of up to 72 GPUs: as exact as small ones where they are regular, and as cheap."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.large import nvswitch, pcie_tree
from topology.bandwidth.rings import members_of
from topology.effort import SEARCH_STEPS
from topology.node.links import Affinity
from topology.node.model import NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.searched_sets import MAX_SETS
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import Communication, GpuRequest

SMALL, WIDE, RACK = TopologyClass(nvswitch(8)), TopologyClass(nvswitch(72)), TopologyClass(nvswitch(72, numa_nodes=36))
TREE, SMALL_TREE = TopologyClass(pcie_tree(4, 4, 2)), TopologyClass(pcie_tree(5, 2, 2))
NARROW, WIDEST_TREE = TopologyClass(pcie_tree(4, 4, 1)), TopologyClass(pcie_tree(4, 9, 2))


def placed(compiled: TopologyClass, free: int, gpus: int, **wants: object) -> Placement:
    found = decide(Situation(compiled, free), GpuRequest(gpus, **wants))  # type: ignore[arg-type]
    assert isinstance(found, Placement)
    return found


def mask_of(gpus: tuple[int, ...]) -> int:
    return sum(1 << i for i in gpus)


@pytest.mark.parametrize("compiled", [WIDE, RACK])
@given(chosen=st.sets(st.integers(0, 71), min_size=4, max_size=4))
def test_any_four_gpus_of_72_are_as_fast_as_four_of_eight(compiled: TopologyClass, chosen: set[int]) -> None:
    """The same generation of NVSwitch: which GPUs take part makes no difference, nor how many there are beside them."""
    assert compiled.predict(mask_of((*chosen,))) == SMALL.predict(0b1111)
    found = placed(compiled, mask_of((*chosen,)), 4)
    assert {*found.gpus} == chosen and found.bandwidth == placed(SMALL, 0b1111, 4).bandwidth


@pytest.mark.slow
@pytest.mark.parametrize("count", [16, 32, 64, 72])
@given(free=st.integers(1, 255), gpus=st.integers(1, 8), communication=st.sampled_from(Communication))
def test_plans_on_many_alike_gpus_are_those_on_eight(
    count: int, free: int, gpus: int, communication: Communication
) -> None:
    """Where the same GPUs are free, the same are chosen, at the same bandwidth; or the same refusal is given."""
    request = GpuRequest(gpus, communication=communication)
    few, many = (decide(Situation(each, free), request) for each in (SMALL, compiled_nvswitch(count)))
    if isinstance(few, Placement) and isinstance(many, Placement):
        assert (many.gpus, many.bandwidth, many.affinity) == (few.gpus, few.bandwidth, few.affinity)
    else:
        assert not isinstance(few, Placement) and not isinstance(many, Placement)
        assert many.message == few.message


WIDTHS: dict[int, TopologyClass] = {72: WIDE}


def compiled_nvswitch(count: int) -> TopologyClass:
    return WIDTHS.setdefault(count, TopologyClass(nvswitch(count)))


def free_below(free: int, width: int) -> int:
    """Return how many GPUs are free in the part that has most; parts are `width` positions wide."""
    return max((free >> at & (1 << width) - 1).bit_count() for at in range(0, 32, width))


@pytest.mark.slow
@given(st.integers(1, 2**32 - 1), st.integers(2, 16))
def test_sets_of_a_pcie_tree_of_32_are_as_near_as_the_free_gpus_allow(free: int, gpus: int) -> None:
    """Under one switch, at one socket, or across: by counting, against which no set that is nearer can be missed.

    The bandwidth is that of such GPUs side by side. Beyond a switch all go through host memory, at one rate.
    """
    if free.bit_count() < gpus:
        return
    is_under_one_switch, is_at_one_socket = (free_below(free, width) >= gpus for width in (4, 16))
    found = placed(TREE, free, gpus)
    assert (found.affinity is Affinity.PCIE_SWITCH) == is_under_one_switch
    beside_each_other = (1 << gpus) - 1
    across = (1 << gpus - 1) - 1 | 1 << 31
    assert found.bandwidth == TREE.predict(beside_each_other if is_under_one_switch else across)[0]
    preferring = placed(TREE, free, gpus, preferred=Affinity.NUMA_NODE)
    assert (preferring.affinity is not Affinity.SYSTEM) == is_at_one_socket


@settings(max_examples=15)
@given(st.integers(0, 2**20 - 1), st.integers(2, 4))
def test_no_set_of_a_small_tree_is_faster_than_the_chosen_one(free: int, gpus: int) -> None:
    """Against all sets of twenty GPUs behind four switches, at two sockets."""
    if free.bit_count() < gpus:
        return
    sets = (mask_of(chosen) for chosen in combinations(members_of(free), gpus))
    found = placed(SMALL_TREE, free, gpus).bandwidth
    assert found is not None
    assert found.point == max(SMALL_TREE.predict(mask)[0].point for mask in sets)


@given(st.integers(0, 2**16 - 1), st.integers(1, 4), st.integers(0, 2**16 - 1))
def test_one_socket_of_a_tree_is_planned_like_a_machine_of_its_own(free: int, gpus: int, doubtful: int) -> None:
    """Blocks are exchanged on the larger machine and single GPUs on the smaller one: both find the same bandwidth."""
    if free.bit_count() < gpus:
        return
    request = GpuRequest(gpus)
    small, large = (decide(Situation(each, free, doubtful=doubtful), request) for each in (NARROW, TREE))
    assert isinstance(small, Placement) and isinstance(large, Placement)
    assert (large.bandwidth, large.affinity) == (small.bandwidth, small.affinity)


@given(st.integers(0, 71), st.integers(0, 71))
def test_the_sound_gpu_is_taken_where_one_is_doubtful(one: int, other: int) -> None:
    """Also on another NUMA node, of which there are 36."""
    if one == other:
        return
    found = decide(Situation(RACK, 1 << one | 1 << other, doubtful=1 << one), GpuRequest(1))
    assert isinstance(found, Placement) and found.gpus == (other,)


@pytest.mark.slow
@given(st.permutations(range(36)), st.integers(0, 1))
def test_the_sound_pair_is_taken_where_one_gpu_of_another_is_doubtful(numa_nodes: list[int], which: int) -> None:
    """Of two NUMA nodes that are free, whichever they are."""
    one, other = (2 * node for node in numa_nodes[:2])
    found = decide(Situation(RACK, 0b11 << one | 0b11 << other, doubtful=1 << one + which), GpuRequest(2))
    assert isinstance(found, Placement) and {*found.gpus} == {other, other + 1}


def test_a_pair_is_taken_from_the_switch_that_is_broken_already() -> None:
    """So that pods of four still find a whole one: all else is equal."""
    assert {*placed(TREE, 0xFFFF0FFF & ~0b11000000, 2).gpus} == {4, 5}


@pytest.mark.parametrize("gpus", [*range(1, 9), 16, 24, 32, 48, 64, 71, 72])
@pytest.mark.parametrize("node", [nvswitch(72), nvswitch(72, numa_nodes=2), nvswitch(72, numa_nodes=36)])
def test_a_first_plan_on_an_nvswitch_takes_one_call(node: NodeTopology, gpus: int) -> None:
    """Whatever its size, with nothing remembered."""
    compiled = TopologyClass(node)
    before = compiled.meter.steps
    assert len(placed(compiled, (1 << 72) - 1, gpus).gpus) == gpus
    assert compiled.meter.steps - before <= SEARCH_STEPS


@given(st.sets(st.integers(0, 71)), st.integers(1, 72))
def test_there_is_a_set_to_look_at_where_enough_gpus_are_free(positions: set[int], gpus: int) -> None:
    """Also where there is only one, or where there are more than can be compared; and never one too many."""
    free = mask_of((*positions,))
    sets = WIDEST_TREE.subsets(free, gpus)
    assert bool(sets) == (len(positions) >= gpus)
    assert len(sets) <= MAX_SETS and all(mask.bit_count() == gpus and not mask & ~free for mask in sets)
