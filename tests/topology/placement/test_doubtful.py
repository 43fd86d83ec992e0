"""Doubtful GPUs are chosen last among equals, and cost neither the pod bandwidth nor the pods to come value."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.topologies import topologies
from topology.bandwidth.rings import members_of
from topology.formats.catalog import MACHINES, machine
from topology.node.links import Affinity
from topology.node.model import Gpu, NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.plan import SETS_WEIGHED, plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import Communication, GpuRequest, NicAffinity

COMPILED = {name: TopologyClass(machine(name)) for name in MACHINES if len(machine(name)) <= 8}
REQUESTS = st.builds(
    GpuRequest,
    st.integers(1, 8),
    preferred=st.sampled_from((None, Affinity.NVLINK, Affinity.NUMA_NODE)),
    required=st.sampled_from((None, None, Affinity.PCIE_SWITCH)),
    communication=st.sampled_from(Communication),
    nic=st.sampled_from((None, NicAffinity.PREFERRED)),
)
NVLINKED = GpuRequest.plain(4)


def chosen(name: str, free: int, size: int, doubtful: int, must: int = 0) -> list[int]:
    situation = Situation(COMPILED[name], free, must_include=must, doubtful=doubtful)
    found = decide(situation, GpuRequest.plain(size))
    assert isinstance(found, Placement)
    return sorted(found.gpus)


@pytest.mark.parametrize("doubtful", range(8))
@pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100"])
def test_an_equal_is_taken_in_its_place(name: str, doubtful: int) -> None:
    """Behind an NVSwitch all GPUs are worth the same: whichever is doubtful, no pod of one to seven gets it."""
    for size in (1, 2, 4, 7):
        assert doubtful not in chosen(name, 0xFF, size, 1 << doubtful)


def test_it_is_taken_where_no_equal_is_free() -> None:
    """Doubtful is not closed: with four free, one of them doubtful, a pod of four gets them all."""
    assert chosen("dgx-a100", 0b1111, 4, 0b0010) == [0, 1, 2, 3]
    assert chosen("dgx-a100", 0b0010, 1, 0b0010) == [1]


def test_no_equal_is_taken_that_the_pod_may_not_have() -> None:
    """A doubtful GPU is exchanged within its part alone: one of 0 and 1 and one of 2 and 3 stay so, and 2 alone stays 2."""
    for parts, expected in ((((0b0011, 1), (0b1100, 1)), [0, 3]), (((0b0100, 1),), [2])):
        found = plan(COMPILED["dgx-a100"], 0xFF, GpuRequest.plain(len(parts)), 0, 0b0100, parts)
        assert isinstance(found, Placement)
        assert sorted(found.gpus) == expected


def test_bandwidth_comes_before_doubt() -> None:
    """On a DGX-1V four GPUs of one clique with a doubtful one among them beat four sound ones that are none."""
    assert chosen("dgx-1v", 0b01111110, 4, 0b01000000) == chosen("dgx-1v", 0b01111110, 4, 0)
    found = decide(Situation(COMPILED["dgx-1v"], 0xFF, doubtful=0b0001_0001), NVLINKED)
    assert isinstance(found, Placement) and found.bandwidth is not None
    assert found.bandwidth.point == COMPILED["dgx-1v"].predict(0b1111)[0].point


def test_of_two_like_halves_the_sound_one_is_taken() -> None:
    """Both cliques of a DGX-1V are worth the same, and the lowest positions no longer decide."""
    assert chosen("dgx-1v", 0xFF, 4, 0) == [0, 1, 2, 3]
    assert chosen("dgx-1v", 0xFF, 4, 0b0100) == [4, 5, 6, 7]


def test_value_comes_before_doubt() -> None:
    """One GPU is taken from the clique that is broken already, doubtful or not: the other stays whole for the pods to come."""
    assert chosen("dgx-1v", 0b11110001, 1, 0b0001) == [0]


def test_fewer_numa_nodes_come_before_doubt() -> None:
    """Host memory is near for all GPUs of the pod, or it is not: four of one NUMA node with a doubtful one stay together."""
    node = NodeTopology(tuple(Gpu(i, f"u{i}", "x", switch_links=12, numa_node=i // 4) for i in range(8)))
    situation = Situation(TopologyClass(node), 0b1111_0111, doubtful=0b1000_0000)
    found = decide(situation, NVLINKED)
    assert isinstance(found, Placement) and sorted(found.gpus) == [4, 5, 6, 7]


def test_the_fullest_numa_node_comes_after_doubt() -> None:
    """A single GPU of a NUMA node that is otherwise taken is the tidier choice only while it is sound."""
    free = 0b1111_1110
    assert chosen("dgx-a100", free, 1, 0) == [1]
    assert chosen("dgx-a100", free, 1, 0b0010) == [2]


def test_among_more_equals_than_are_weighed_the_sound_ones_are() -> None:
    """Eight GPUs no two of which are alike: the sixteen pairs that come first all have one of the three doubtful ones."""
    unlike = NodeTopology(tuple(Gpu(i, f"u{i}", "x", memory_bytes=2**34 + i) for i in range(8)))
    found = decide(Situation(TopologyClass(unlike), 0xFF, doubtful=0b0111), GpuRequest.plain(2))
    assert isinstance(found, Placement) and sorted(found.gpus) == [3, 4]


def test_a_gpu_that_must_be_among_them_is() -> None:
    """What the kubelet insists on, or the pod has claimed, is not exchanged for a sounder one; the rest is sound."""
    assert chosen("hgx-h100", 0xFF, 2, 0b0011, must=0b0001) == [0, 2]


def test_what_was_found_with_a_doubt_is_not_told_without() -> None:
    """The same machine, the same free GPUs, the same pod: each doubt is a question of its own."""
    assert [chosen("dgx-a100", 0xFF, 1, doubt) for doubt in (0, 1, 0, 2, 3, 0)] == [[0], [1], [0], [0], [2], [0]]


def test_a_doubt_about_gpus_that_are_not_free_asks_nothing_new() -> None:
    """A GPU that somebody holds may be as doubtful as it likes: the answer is remembered already."""
    compiled = TopologyClass(machine("dgx-a100"))
    first = plan(compiled, 0x0F, NVLINKED)
    spent = compiled.meter.steps
    assert plan(compiled, 0x0F, NVLINKED, doubtful=0xF0) is first
    assert compiled.meter.steps == spent


def doubts(placement: Placement, doubtful: int) -> int:
    return sum(doubtful >> i & 1 for i in placement.gpus)


def equals(compiled: TopologyClass, free: int, request: GpuRequest, like: int) -> list[int]:
    """Return every set of free GPUs that is worth the same to the pod and to those to come, in as few NUMA nodes."""

    def worth(mask: int) -> tuple[object, ...]:
        links: tuple[object, ...] = ()
        if request.gpus > 1 and request.communication is not Communication.NONE:
            bandwidth, affinity = compiled.predict(mask)
            links = bandwidth.point, request.is_content_with(affinity)
        near_nic = (mask & compiled.near_nic).bit_count() if request.nic else 0
        return links, near_nic, round(compiled.value(free & ~mask), 9), compiled.spread(mask, free)[0]

    sets = (sum(1 << i for i in some) for some in combinations(members_of(free), like.bit_count()))
    return [mask for mask in sets if worth(mask) == worth(like)]


def point(placement: Placement) -> float | None:
    """Return the bandwidth by which sets are ranked."""
    return placement.bandwidth.point if placement.bandwidth else None


def assert_only_equals_change(compiled: TopologyClass, free: int, doubtful: int, request: GpuRequest) -> None:
    plain, found = plan(compiled, free, request), plan(compiled, free, request, doubtful=doubtful)
    if not isinstance(plain, Placement) or not isinstance(found, Placement):
        assert found == plain
        return
    if request.communication is not Communication.NONE:  # such a pod takes any set that leaves as much
        assert point(found) == point(plain)
    assert request.is_content_with(found.affinity) == request.is_content_with(plain.affinity)
    assert found.score >= plain.score - 1e-9
    assert sum(1 << i for i in found.gpus) & ~free == 0 and len(set(found.gpus)) == request.gpus
    assert doubts(found, doubtful) <= doubts(plain, doubtful)
    if not doubts(plain, doubtful):
        assert found == plain


@given(st.sampled_from(sorted(COMPILED)), st.integers(0, 255), st.integers(0, 255), REQUESTS)
def test_doubt_changes_only_which_of_equals_is_taken(name: str, free: int, doubtful: int, request: GpuRequest) -> None:
    """On every reference machine of up to eight GPUs: the same verdict, the same bandwidth, no less value, never more doubt."""
    compiled = COMPILED[name]
    assert_only_equals_change(compiled, free & (1 << len(compiled.node)) - 1, doubtful, request)


@pytest.mark.slow
@given(topologies(min_gpus=1), st.integers(0, 255), st.integers(0, 255), REQUESTS)
def test_doubt_changes_only_which_of_equals_is_taken_on_any_machine(
    node: NodeTopology, free: int, doubtful: int, request: GpuRequest
) -> None:
    """However odd the wires."""
    assert_only_equals_change(TopologyClass(node), free & (1 << len(node)) - 1, doubtful, request)


@given(st.sampled_from(sorted(COMPILED)), st.integers(0, 255), st.integers(0, 255), REQUESTS)
def test_no_equal_has_fewer_doubtful_gpus(name: str, free: int, doubtful: int, request: GpuRequest) -> None:
    """Against every single set, wherever few enough are equal that all of them are weighed."""
    compiled = COMPILED[name]
    free &= (1 << len(compiled.node)) - 1
    found = plan(compiled, free, replace(request, required=None), doubtful=doubtful)
    if isinstance(found, Placement):
        like = equals(compiled, free, request, sum(1 << i for i in found.gpus))
        if len(compiled.subsets(free, request.gpus)) <= SETS_WEIGHED:
            assert doubts(found, doubtful) == min((mask & doubtful).bit_count() for mask in like)
