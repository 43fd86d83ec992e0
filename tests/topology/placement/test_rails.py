"""A pod of a group gets, of equals, the GPUs on the rails of its group; it costs neither bandwidth, value nor sound GPUs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.topologies import topologies
from tests.topology.placement.test_doubtful import REQUESTS, equals
from topology.bandwidth.rings import members_of
from topology.effort import Effort
from topology.formats.catalog import MACHINES, machine
from topology.node.links import Affinity
from topology.node.model import Gpu, NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.plan import SETS_WEIGHED, plan
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import Communication, GpuRequest

COMPILED = {name: TopologyClass(machine(name)) for name in MACHINES if len(machine(name)) <= 8}
BYTE = st.integers(0, 255)
RAILS = st.builds(Rails, BYTE, BYTE)


def chosen(name: str, free: int, size: int, rails: Rails, doubtful: int = 0, must: int = 0) -> list[int]:
    situation = Situation(COMPILED[name], free, must_include=must, doubtful=doubtful, rails=rails)
    found = decide(situation, GpuRequest.plain(size))
    assert isinstance(found, Placement)
    return sorted(found.gpus)


@pytest.mark.parametrize("on_the_first", [*combinations(range(8), 2), *combinations(range(4, 8), 3)])
def test_the_second_node_gives_the_rails_of_the_first(on_the_first: tuple[int, ...]) -> None:
    """On an idle DGX H100 any GPUs of one NUMA node are as good as any others, and those of the group's rails are taken."""
    rails = Rails(preferred=sum(1 << i for i in on_the_first))
    found = chosen("hgx-h100", 0xFF, len(on_the_first), rails)
    if len({i // 4 for i in on_the_first}) == 1:
        assert found == [*on_the_first]
    else:
        assert len({i // 4 for i in found}) == 1 and len({*found} & {*on_the_first}) == 1


def test_a_rail_that_is_taken_is_replaced_and_the_others_are_kept() -> None:
    """Of the rails 5, 6 and 7 the second node has 5 and 7 left."""
    assert chosen("hgx-h100", 0b1011_1111, 3, Rails(preferred=0b1110_0000)) == [4, 5, 7]


def test_of_two_gpus_that_share_nics_the_one_beside_a_busy_pod_comes_last() -> None:
    """On a DGX A100 two GPUs share two NICs; another group's pod has GPU 0, so GPU 1 comes last."""
    assert chosen("dgx-a100", 0b1111_1110, 1, NO_RAILS) == [1]
    assert chosen("dgx-a100", 0b1111_1110, 1, Rails(busy=0b0011)) == [2]


def test_rails_of_the_group_come_before_busy_ones() -> None:
    """With its group on the rail of GPUs 0 and 1 a pod goes there, and shares the NIC."""
    assert chosen("dgx-a100", 0b1111_1110, 1, Rails(preferred=0b0011, busy=0b0011)) == [1]


def test_a_doubtful_gpu_on_the_right_rail_is_left() -> None:
    """A sound GPU on another rail is taken before one that may fail."""
    assert chosen("hgx-h100", 0xFF, 2, Rails(preferred=0b0110), doubtful=0b0100) == [0, 1]


def test_value_comes_before_rails() -> None:
    """On a DGX-1V one GPU is taken from the clique that is broken already, wherever its group is."""
    assert chosen("dgx-1v", 0b1111_0001, 1, Rails(preferred=0b0011_0000)) == [0]


def test_affinity_comes_before_rails() -> None:
    """Three GPUs under one PCIe switch, though one is busy and the pod asks for no affinity."""
    compiled, request = COMPILED["rtx-4090-8"], GpuRequest(3)
    plain, found = (plan(compiled, 0b11011, request, rails=rails) for rails in (NO_RAILS, Rails(busy=0b1)))
    assert isinstance(plain, Placement) and isinstance(found, Placement)
    assert found.affinity == plain.affinity == Affinity.PCIE_SWITCH


def test_among_more_equals_than_are_weighed_those_on_rails_are() -> None:
    """Eight GPUs no two of which are alike: of their 28 pairs the last one is on the rails."""
    unlike = NodeTopology(tuple(Gpu(i, f"u{i}", "x", memory_bytes=2**34 + i) for i in range(8)))
    found = decide(Situation(TopologyClass(unlike), 0xFF, rails=Rails(0b1100_0000)), GpuRequest.plain(2))
    assert isinstance(found, Placement) and sorted(found.gpus) == [6, 7]


def test_doubt_comes_before_rails() -> None:
    """GPUs 6 and 7 are on the rails, and 7 is doubtful: none of the others is like it, and one is taken in its place."""
    unlike = NodeTopology(tuple(Gpu(i, f"u{i}", "x", memory_bytes=2**34 + i) for i in range(8)))
    situation = Situation(TopologyClass(unlike), 0xFF, doubtful=0b1000_0000, rails=Rails(0b1100_0000))
    found = decide(situation, GpuRequest.plain(2))
    assert isinstance(found, Placement) and sorted(found.gpus) == [0, 6]


def test_a_gpu_that_must_be_among_them_is() -> None:
    """Whatever its rail, and however busy; the rest is on the rails of the group."""
    assert chosen("hgx-h100", 0xFF, 2, Rails(preferred=0b1100, busy=0b0001), must=0b0001) == [0, 2]
    assert chosen("hgx-h100", 0xFF, 1, Rails(preferred=0b1100, busy=0b0001), must=0b0001) == [0]


def test_a_pod_that_does_not_communicate_asks_nothing_new() -> None:
    """It has the answer of a pod without a group, and so has every pod whose rails are all free or all taken."""
    compiled = TopologyClass(machine("hgx-h100"))
    silent, plain = GpuRequest(2, communication=Communication.NONE), GpuRequest.plain(2)
    first, second = plan(compiled, 0x0F, silent), plan(compiled, 0x0F, plain)
    spent = compiled.meter.steps
    assert plan(compiled, 0x0F, silent, rails=Rails(0b1100, 0b0001)) is first
    for rails in (NO_RAILS, Rails(), Rails(0xFF), Rails(0xF0, 0xF0), Rails(0x0F, 0x0F)):
        assert plan(compiled, 0x0F, plain, rails=rails) is second
    assert compiled.meter.steps == spent


def test_a_search_that_takes_long_because_of_rails_alone_does_not_keep_the_pod_waiting() -> None:
    """What is known without them is given until the better answer is there."""
    compiled = TopologyClass(machine("dgx-1v"), effort=(effort := Effort()))
    known = plan(compiled, 0xFF, GpuRequest.plain(2))
    compiled._values.clear()
    with effort.bounded(1):
        assert plan(compiled, 0xFF, GpuRequest.plain(2), rails=Rails(0b1111_0000)) is known
    assert isinstance(plan(compiled, 0xFF, GpuRequest.plain(2), rails=Rails(0b1111_0000)), Placement)


def is_on_the_network(request: GpuRequest) -> bool:
    return request.gpus == 1 or request.communication is not Communication.NONE


def cost(found: Placement, doubtful: int, rails: Rails) -> tuple[int, int, tuple[int, int]]:
    """Doubt, distance, rails: what comes first among equals."""
    mask = sum(1 << i for i in found.gpus)
    return (mask & doubtful).bit_count(), found.affinity.distance if found.affinity else 0, rails.cost(mask)


def costs(compiled: TopologyClass, mask: int, doubtful: int, rails: Rails) -> tuple[int, int, tuple[int, int]]:
    distance = compiled.predict(mask)[1].distance if mask.bit_count() > 1 else 0
    return (mask & doubtful).bit_count(), distance, rails.cost(mask)


def assert_only_equals_change(
    compiled: TopologyClass, free: int, doubtful: int, request: GpuRequest, rails: Rails
) -> None:
    plain = plan(compiled, free, request, doubtful=doubtful)
    found = plan(compiled, free, request, doubtful=doubtful, rails=rails)
    if not isinstance(plain, Placement) or not isinstance(found, Placement):
        assert found == plain
        return
    if found.bandwidth is None or plain.bandwidth is None or found.affinity == plain.affinity:
        assert found.bandwidth == plain.bandwidth
    else:  # the interval around it is that of the nearer affinity
        assert found.bandwidth.point == plain.bandwidth.point
    assert found.score >= plain.score - 1e-9
    masks = [sum(1 << i for i in each.gpus) for each in (found, plain)]
    assert masks[0] & ~free == 0 and masks[0].bit_count() == request.gpus
    if found.value_lost is not None and plain.value_lost is not None and found.value_lost > plain.value_lost - 1e-9:
        numa_nodes = [compiled.spread(mask, free)[0] for mask in masks]
        assert numa_nodes[0] <= numa_nodes[1]
        if numa_nodes[0] == numa_nodes[1] and is_on_the_network(request):
            assert cost(found, doubtful, rails) <= cost(plain, doubtful, rails)


@given(st.sampled_from(sorted(COMPILED)), BYTE, st.sampled_from([0, 0, 1, 0b100100]), REQUESTS, RAILS)
def test_rails_change_only_which_of_equals_is_taken(
    name: str, free: int, doubtful: int, request: GpuRequest, rails: Rails
) -> None:
    """On every reference machine: the same verdict and bandwidth, no less value, no more doubtful GPUs, never worse rails."""
    compiled = COMPILED[name]
    assert_only_equals_change(compiled, free & (1 << len(compiled.node)) - 1, doubtful, request, rails)


@pytest.mark.slow
@given(topologies(min_gpus=1), BYTE, BYTE, REQUESTS, RAILS)
def test_rails_change_only_which_of_equals_is_taken_on_any_machine(
    node: NodeTopology, free: int, doubtful: int, request: GpuRequest, rails: Rails
) -> None:
    """However odd the wires."""
    assert_only_equals_change(TopologyClass(node), free & (1 << len(node)) - 1, doubtful, request, rails)


@given(st.sampled_from(sorted(COMPILED)), BYTE, st.sampled_from([0, 0, 1, 0b100100]), REQUESTS, RAILS)
def test_no_equal_is_on_better_rails(name: str, free: int, doubtful: int, request: GpuRequest, rails: Rails) -> None:
    """Against every single set, wherever few enough are equal that all of them are weighed."""
    compiled = COMPILED[name]
    free &= (1 << len(compiled.node)) - 1
    found = plan(compiled, free, request, doubtful=doubtful, rails=rails)
    if isinstance(found, Placement) and is_on_the_network(request):
        like = equals(compiled, free, request, sum(1 << i for i in found.gpus))
        if len(compiled.subsets(free, request.gpus)) <= SETS_WEIGHED:
            assert cost(found, doubtful, rails) == min(costs(compiled, mask, doubtful, rails) for mask in like)


def test_members_of_the_catalogue_are_on_rails() -> None:
    """GPUs that share a NIC share a rail; one without a NIC is on none."""
    assert [COMPILED["dgx-1v"].on_rails_of(1 << i) for i in (0, 1, 7)] == [0b11, 0b11, 0b1100_0000]
    assert COMPILED["hgx-h100"].on_rails_of(0b101) == 0b101
    assert [members_of(COMPILED["l40s-8"].on_rails_of(1 << i)) for i in (0, 2)] == [(0, 1), ()]
