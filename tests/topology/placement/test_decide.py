"""The one door: each field of a situation does what it says, alone and exactly."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.formats.catalog import machine
from topology.node.links import Affinity
from topology.node.model import Gpu, Link, NodeTopology
from topology.placement.decide import Decision, Situation, decide
from topology.placement.forecast import forecast
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import ASK_WHO, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind

CUBE = TopologyClass(machine("dgx-1v"))
MACHINES = {name: TopologyClass(machine(name)) for name in ("dgx-1v", "a100-pcie-8-pairs", "l40s-8", "ac922-6")}
EVERY = 0xFF


def mask_of(decided: Decision) -> int:
    assert isinstance(decided, Placement)
    return sum(1 << position for position in decided.gpus)


@given(st.sampled_from([*MACHINES]), st.integers(0, EVERY), st.integers(0, EVERY), st.integers(1, 6))
def test_given_gpus_are_among_the_best_set_that_has_them(name: str, free: int, must: int, size: int) -> None:
    """Against every set of the free GPUs that has them; whoever has them, they need not be free."""
    compiled = MACHINES[name]
    whole = (1 << len(compiled.node)) - 1
    free, must = free & whole, must & whole
    found = decide(Situation(compiled, free, must_include=must), GpuRequest(size))
    possible = [
        mask
        for mask in range(whole + 1)
        if mask.bit_count() == size and mask & must == must and not mask & ~(free | must)
    ]
    if not possible:
        assert isinstance(found, Rejection)
        return
    chosen = mask_of(found)
    assert chosen in possible
    if size > 1:
        assert compiled.predict(chosen)[0].point == max(compiled.predict(mask)[0].point for mask in possible)


def test_given_gpus_are_kept_where_there_are_too_many_sets_to_try() -> None:
    """On 24 GPUs of which no two are alike sets are grown, and from those that are given."""
    gpus = tuple(Gpu(i, f"u{i}", f"model {i}") for i in range(24))
    links = tuple(Link(i, j, nvlinks=int((i * j) % 3 > 0)) for i, j in combinations(range(24), 2))
    compiled = TopologyClass(NodeTopology(gpus, links))
    must = 1 << 3 | 1 << 17
    chosen = mask_of(decide(Situation(compiled, (1 << 24) - 1, must_include=must), GpuRequest(8)))
    assert chosen & must == must
    assert chosen.bit_count() == 8


def test_given_gpus_that_are_not_as_asked_for_are_a_no() -> None:
    """As are more of them than the pod asks for."""
    wrong = decide(Situation(CUBE, EVERY, must_include=0b1), GpuRequest(2, models=("*h100*",)))
    many = decide(Situation(CUBE, EVERY, must_include=0b111), GpuRequest(2))
    assert isinstance(wrong, Rejection)
    assert isinstance(many, Rejection)
    assert (wrong.reason, many.reason) == (Reason.UNSUITABLE_GPUS, Reason.TOO_FEW_FREE)


def test_a_given_gpu_that_is_not_as_asked_for_is_a_no_beside_enough_that_are() -> None:
    """Nobody takes it back, so the pod would run on it."""
    cube = machine("dgx-1v")
    mixed = TopologyClass(replace(cube, gpus=(replace(cube.gpus[0], model="Tesla K80"), *cube.gpus[1:])))
    found = decide(Situation(mixed, EVERY, must_include=0b1), GpuRequest(2, models=("*v100*",)))
    assert found == Rejection(Reason.UNSUITABLE_GPUS, "a GPU that has to be among them is not as asked for")


@pytest.mark.parametrize(("free", "must", "size"), [(EVERY, 0b10000, 1), (0b10, 0b1, 2), (EVERY, 0b1001, 2)])
def test_given_gpus_may_be_all_that_there_is_to_choose(free: int, must: int, size: int) -> None:
    """One that is enough, one that is not free for others, and as many as asked for."""
    chosen = mask_of(decide(Situation(CUBE, free, must_include=must), GpuRequest(size)))
    assert chosen & must == must
    assert chosen.bit_count() == size


def test_what_is_said_of_sets_that_are_too_far_counts_with_the_given_gpus() -> None:
    """Others share a bridge; 0 and 7 do not."""
    pairs = TopologyClass(machine("a100-pcie-8-pairs"))
    found = decide(Situation(pairs, EVERY, must_include=0b10000001), GpuRequest(3, required=Affinity.NVLINK))
    assert isinstance(found, Rejection)
    assert (found.message, found.figures) == ("no 3 free GPUs share an NVLink ring with those given", "no two do")


def test_nobody_forecasts_what_the_plugin_does_with_given_gpus() -> None:
    """A forecast that left them out would be believed."""
    with pytest.raises(ValueError, match="no forecast"):
        Situation(CUBE, EVERY, must_include=0b1, plugin_chooses=True)


def test_gpus_that_nobody_knows_of_are_as_good_as_taken() -> None:
    """Two of eight: six are the most, and nothing is promised of them."""
    situation = Situation(CUBE, EVERY, unknown=2)
    assert isinstance(decide(situation, GpuRequest.plain(6)), Placement)
    too_many = "too few GPUs are free: pods without a placement record hold unknown GPUs"
    refused = decide(situation, GpuRequest.plain(7))
    assert isinstance(refused, Rejection)
    assert (refused.reason, refused.message, refused.resolvable) == (Reason.TOO_FEW_FREE, too_many, True)
    assert refused.figures == "2 of 8 that seem free"


@pytest.mark.parametrize("wish", [GpuRequest(2, required=Affinity.NVLINK), GpuRequest(2, min_bandwidth_gb_per_s=1.0)])
def test_where_some_gpus_are_unknown_nothing_is_promised_of_a_set(wish: GpuRequest) -> None:
    """The kubelet may have to give others than the planned ones."""
    refused = Rejection(Reason.CLOSED, "pods without a placement record hold unknown GPUs", remedy=ASK_WHO)
    assert decide(Situation(CUBE, EVERY, unknown=2), wish) == refused


def test_given_gpus_count_beside_unknown_ones() -> None:
    """One is given and two are free, of which one is not: there are two."""
    situation = Situation(CUBE, 0b110, must_include=0b1, unknown=1)
    assert mask_of(decide(situation, GpuRequest.plain(2))) & 0b1
    assert isinstance(decide(situation, GpuRequest.plain(3)), Rejection)


def test_what_a_plugin_will_choose_is_forecast() -> None:
    """NVIDIA's plugin takes the single GPU from either island, and we would take the one that is alone."""
    one, free = GpuRequest.plain(1), 0b11111000
    assert decide(Situation(CUBE, free, plugin_chooses=True), one) == forecast(CUBE, free, one)
    assert decide(Situation(CUBE, free, plugin_chooses=True), one) != decide(Situation(CUBE, free), one)


def test_cpu_tells_nodes_apart_and_never_the_sets_of_one_node() -> None:
    """With free capacity counted the score falls where cores run short; the GPUs stay the same."""
    to_come = DemandProfile([(PodKind(1, cpu_milli=8_000), 1.0)])
    request = replace(GpuRequest.plain(2), cpu_milli=32_000)
    capacities = [FreeCapacity.of_whole(8, EVERY, cpu_milli) for cpu_milli in (96_000, 40_000)]
    plenty, tight = (
        decide(Situation(CUBE, EVERY, capacity=capacity, to_come=to_come), request) for capacity in capacities
    )
    alone = decide(Situation(CUBE, EVERY), request)
    assert isinstance(plenty, Placement)
    assert isinstance(tight, Placement)
    assert mask_of(plenty) == mask_of(tight) == mask_of(alone)
    assert plenty.score > tight.score


def test_what_nobody_counts_makes_no_difference() -> None:
    """Free capacity without pods to come, pods to come without capacity, and both for a pod that does not fit."""
    to_come, capacity = DemandProfile([(PodKind(1, cpu_milli=8_000), 1.0)]), FreeCapacity.of_whole(8, EVERY, 40_000)
    alone = decide(Situation(CUBE, EVERY), GpuRequest.plain(2))
    assert decide(Situation(CUBE, EVERY, capacity=capacity), GpuRequest.plain(2)) == alone
    assert decide(Situation(CUBE, EVERY, to_come=to_come), GpuRequest.plain(2)) == alone
    full = decide(Situation(CUBE, 0), GpuRequest.plain(2))
    assert (
        decide(Situation(CUBE, 0, capacity=FreeCapacity.of_whole(8, 0, 40_000), to_come=to_come), GpuRequest.plain(2))
        == full
    )


def test_pods_that_differ_in_cpu_alone_share_a_plan() -> None:
    """Each amount of CPU would search every shape anew otherwise."""
    first, other = (replace(GpuRequest.plain(4), cpu_milli=milli) for milli in (1_000, 2_000))
    assert decide(Situation(CUBE, EVERY), first) is decide(Situation(CUBE, EVERY), other)
