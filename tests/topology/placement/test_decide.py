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
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
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


def test_what_is_said_of_sets_that_are_too_far_counts_with_the_given_gpus() -> None:
    """Others share a bridge; 0 and 7 do not."""
    pairs = TopologyClass(machine("a100-pcie-8-pairs"))
    found = decide(Situation(pairs, EVERY, must_include=0b10000001), GpuRequest(3, required=Affinity.NVLINK))
    assert isinstance(found, Rejection)
    assert found.message == "no two free GPUs share an NVLink ring with those given, pod needs 3"


def test_nobody_forecasts_what_the_plugin_does_with_given_gpus() -> None:
    """A forecast that left them out would be believed."""
    with pytest.raises(ValueError, match="no forecast"):
        Situation(CUBE, EVERY, must_include=0b1, observed=True)


def test_gpus_that_nobody_knows_of_are_as_good_as_taken() -> None:
    """Two of eight: six are the most, and nothing is promised of them."""
    situation = Situation(CUBE, EVERY, unknown=2)
    assert isinstance(decide(situation, GpuRequest.plain(6)), Placement)
    assert isinstance(decide(situation, GpuRequest.plain(7)), Rejection)
    assert isinstance(decide(situation, replace(GpuRequest.plain(2), required=Affinity.NVLINK)), Rejection)


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


def test_pods_that_differ_in_cpu_alone_share_a_plan() -> None:
    """Each amount of CPU would search every shape anew otherwise."""
    first, other = (replace(GpuRequest.plain(4), cpu_milli=milli) for milli in (1_000, 2_000))
    assert decide(Situation(CUBE, EVERY), first) is decide(Situation(CUBE, EVERY), other)


def test_a_share_needs_no_more_than_a_gpu_with_so_much_left() -> None:
    """Where nobody counts what is left, a whole GPU; where somebody does, the one that is begun."""
    half = replace(GpuRequest.plain(1), gpu_milli=500)
    assert mask_of(decide(Situation(CUBE, 0b1000), half)) == 0b1000
    begun = FreeCapacity((1000,) * 6 + (500, 1000), 96_000)
    assert mask_of(decide(Situation(CUBE, begun.free, capacity=begun), half)) == 1 << 6
    assert isinstance(decide(Situation(CUBE, 0), half), Rejection)
