"""The choice of MIG slices: least is lost to pods to come, against every choice; and why there is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.effort import Effort
from topology.formats.catalog import machine
from topology.node.links import Affinity
from topology.node.model import NodeTopology
from topology.node.slices import Slice
from topology.node.status import MigStrategy
from topology.placement.decide import Decision, Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED, UNKNOWN_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest

GPUS = 8
LAYOUTS = {
    "small": [("1g.10gb", 1)] * 7,
    "balanced": [("3g.40gb", 4), ("2g.20gb", 2), ("1g.10gb", 1), ("1g.10gb", 1)],
    "halves": [("3g.40gb", 4), ("3g.40gb", 4)],
    "shared": [("1c.3g.40gb", 4)] * 3,
    "uneven": [("1c.3g.40gb", 4)] * 4 + [("2c.3g.40gb", 4)],
    "media": [("1g.10gb+me", 1), ("1g.10gb", 1), ("1g.20gb", 2)],
}


def cut(*layouts: str) -> NodeTopology:
    """Return an HGX H100 whose last GPUs are cut up so."""
    node = machine("hgx-h100")
    slices: list[Slice] = []
    for gpu, name in enumerate(layouts, start=GPUS - len(layouts)):
        start = 0
        for number, (profile, size) in enumerate(LAYOUTS[name]):
            place = number // 3 * 4 if "c." in profile else start  # three compute instances share the memory of one
            slices.append(Slice(gpu, f"MIG-{gpu}-{number}", profile, size * 10**10, place, size, number, 0))
            start += size
    gpus = tuple(replace(gpu, mig_enabled=gpu.index >= GPUS - len(layouts)) for gpu in node.gpus)
    return replace(node, gpus=gpus, slices=tuple(slices))


def ask(node: NodeTopology, free: int, profile: str, count: int = 1, **situation: object) -> Decision:
    """Decide on slices; `free` is over slices."""
    wanted = GpuRequest(count, profile=profile)
    known = {"mig": MigStrategy.MIXED} | situation
    return decide(Situation(TopologyClass(node), free << GPUS | 0xFF, **known), wanted)  # type: ignore[arg-type]


def names(node: NodeTopology, found: Decision) -> list[str]:
    assert isinstance(found, Placement), found
    return [node.devices[position] for position in found.gpus]


def lost(node: NodeTopology, free: int, taken: int) -> float:
    """Return what a choice costs by the definition: the squares of the free parts of the GPUs."""
    total = 0.0
    for gpu in range(GPUS):
        sizes = [
            (i, each.size / 8 / sum((each.gpu, each.start) == (o.gpu, o.start) for o in node.slices))
            for i, each in enumerate(node.slices)
            if each.gpu == gpu
        ]
        before, after = (sum(size for i, size in sizes if mask >> i & 1) for mask in (free, free & ~taken))
        total += before**2 - after**2
    return total


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([*LAYOUTS]), min_size=1, max_size=3),
    st.integers(0, 2**21 - 1),
    st.sampled_from(["1g.10gb", "3g.40gb", "1c.3g.40gb", "1g.10gb.me"]),
    st.integers(1, 4),
)
def test_no_choice_costs_the_pods_to_come_less(layouts: list[str], free: int, profile: str, count: int) -> None:
    """Against every set of free slices of the profile; and there is one if and only if there are enough."""
    node = cut(*layouts)
    free &= (1 << len(node.slices)) - 1
    usable = [i for i, each in enumerate(node.slices) if free >> i & 1 and each.asked_as == profile]
    found = ask(node, free, profile, count)
    if len(usable) < count:
        assert isinstance(found, Rejection)
        return
    assert isinstance(found, Placement)
    chosen = [position - GPUS for position in found.gpus]
    assert set(chosen) <= set(usable)
    best = min(lost(node, free, sum(1 << i for i in some)) for some in combinations(usable, count))
    assert lost(node, free, sum(1 << i for i in chosen)) == pytest.approx(best)
    assert found.value_lost == pytest.approx(best)


def test_slice_comes_out_of_the_fullest_gpu() -> None:
    """GPU 7 has one slice left, GPU 6 all of them: GPU 6 can still be cut anew, or made whole."""
    node = cut("small", "small")
    assert names(node, ask(node, 1 << 13 | 0b1111111, "1g.10gb")) == ["MIG-7-6"]


def test_full_gpus_are_better_nodes() -> None:
    """So a pod goes to the node where the last slice of a GPU is free, and the other node stays empty."""
    node = cut("small")
    full, empty = ask(node, 0b1, "1g.10gb"), ask(node, 0b1111111, "1g.10gb")
    assert isinstance(full, Placement)
    assert isinstance(empty, Placement)
    assert full.score > empty.score


def test_doubtful_gpu_comes_last_among_equals() -> None:
    """Two GPUs are as full; one of them has errors."""
    node = cut("small", "small")
    every = (1 << 14) - 1
    assert names(node, ask(node, every, "1g.10gb", doubtful=0b1111111 << GPUS)) == ["MIG-7-0"]


def test_given_slices_are_among_the_chosen() -> None:
    """An init container of the pod has them already."""
    node = cut("small", "small")
    assert names(node, ask(node, 0b111, "1g.10gb", 2, must_include=1 << 13 << GPUS)) == ["MIG-6-0", "MIG-7-6"]


def test_gpus_that_are_cut_are_nobodys_gpus() -> None:
    """A pod that asks for GPUs gets whole ones, beside slices; and never both for one."""
    node = cut("small", "small")
    situation = Situation(TopologyClass(node), 0x3FFF << GPUS | 0xFF, mig=MigStrategy.MIXED)
    found = decide(situation, GpuRequest(6))
    assert isinstance(found, Placement)
    assert sorted(found.gpus) == [0, 1, 2, 3, 4, 5]
    refused = decide(situation, GpuRequest(7))
    assert isinstance(refused, Rejection)
    assert refused.message == "fewer than 7 of the node's GPUs are whole: MIG is on"


def test_slices_stand_for_gpus_where_the_strategy_is_single() -> None:
    """A request for GPUs is met with slices there, and its memory and model are asked of the slice."""
    node = cut(*["small"] * 8)
    situation = Situation(TopologyClass(node), (2**56 - 1) << GPUS, mig=MigStrategy.SINGLE)
    assert names(node, decide(situation, GpuRequest(2))) == ["MIG-0-0", "MIG-0-1"]
    refused = decide(situation, GpuRequest(1, min_memory_bytes=2 * 10**10))
    assert isinstance(refused, Rejection)
    assert refused.message == "none of the node's MIG slices have min-gpu-memory"


@pytest.mark.parametrize(
    ("situation", "request_", "reason", "message", "figures"),
    [
        ({}, {"profile": "7g.80gb"}, Reason.NO_GPUS, "node has no 7g.80gb slices", "it has 7 1g.10gb"),
        (
            {"mig": MigStrategy.NONE},
            {"profile": "1g.10gb"},
            Reason.UNSUITABLE_GPUS,
            "the device plugin offers no MIG slices",
            "",
        ),
        (
            {"mig": MigStrategy.SINGLE},
            {"profile": "1g.10gb"},
            Reason.UNSUITABLE_GPUS,
            "the node's MIG slices are offered as GPUs",
            "",
        ),
        (
            {"unknown": 2},
            {"profile": "1g.10gb", "gpus": 2},
            Reason.TOO_FEW_FREE,
            f"too few 1g.10gb slices are free: {UNKNOWN_GPUS}",
            "3 of 7 are free, pod needs 2",
        ),
        (
            {},
            {"profile": "1g.10gb", "gpus": 2, "required": Affinity.NVLINK},
            Reason.AFFINITY,
            "MIG slices cannot reach each other",
            "",
        ),
        (
            {},
            {"profile": "1g.10gb", "models": ("*a100*",)},
            Reason.UNSUITABLE_GPUS,
            "none of the node's MIG slices match gpu-model",
            "0 of 7, pod needs 1; they are NVIDIA H100 80GB HBM3",
        ),
    ],
)
def test_refusal_says_what_there_is(
    situation: dict[str, object], request_: dict[str, object], reason: Reason, message: str, figures: str
) -> None:
    """One sentence for equal nodes, and the node's figures beside it."""
    known = {"mig": MigStrategy.MIXED} | situation
    found = decide(
        Situation(TopologyClass(cut("small")), 0b111 << GPUS, **known),  # type: ignore[arg-type]
        GpuRequest(**({"gpus": 1} | request_)),  # type: ignore[arg-type]
    )
    assert isinstance(found, Rejection)
    assert (found.reason, found.message, found.figures) == (reason, message, figures)


def test_plugin_that_chooses_is_expected_to_take_any() -> None:
    """NVIDIA's plugin takes slices of a profile at random: the loss is the mean, and all of them have to suit the pod."""
    node = cut("small", "small")
    free = 1 << 13 | 0b1111111
    exact, guessed = (ask(node, free, "1g.10gb", plugin_chooses=chooses) for chooses in (False, True))
    assert isinstance(exact, Placement)
    assert isinstance(guessed, Placement)
    assert guessed.score < exact.score
    each = [lost(node, free, 1 << i) for i in (*range(7), 13)]
    assert guessed.value_lost == pytest.approx(sum(each) / 8)


PLACES = {"1g.10gb": (1, range(7)), "2g.20gb": (2, (0, 2, 4)), "3g.40gb": (4, (0, 4)), "7g.80gb": (8, (0,))}


def offered(*gpus: int) -> NodeTopology:
    """Return an HGX H100 of which these GPUs are offered whole, and in each part that can be made of them."""
    places = [(name, size, start) for name, (size, starts) in PLACES.items() for start in starts]
    slices = [
        Slice(gpu, f"MIG-{gpu}-{name}-{start}", name, size * 10**10, start, size, number, 0, on_demand=True)
        for gpu in gpus
        for number, (name, size, start) in enumerate(places)
    ]
    return replace(machine("hgx-h100"), slices=tuple(slices))


def mask(node: NodeTopology, *devices: str) -> int:
    return sum(1 << node.devices.index(device) for device in devices)


def test_what_is_made_on_demand_excludes_its_gpu_and_what_overlaps_it() -> None:
    """And the GPU excludes all of its slices."""
    node = offered(0, 1)
    excluding, whole = TopologyClass(node).excluding, [gpu.uuid for gpu in node.gpus]
    assert excluding(mask(node, "MIG-0-2g.20gb-2")) == mask(
        node, whole[0], "MIG-0-2g.20gb-2", "MIG-0-1g.10gb-2", "MIG-0-1g.10gb-3", "MIG-0-3g.40gb-0", "MIG-0-7g.80gb-0"
    )
    assert excluding(1) == mask(node, whole[0], *(each.uuid for each in node.slices if each.gpu == 0))
    assert TopologyClass(cut("small")).excluding(1 << GPUS) == 1 << GPUS, "its GPU is offered in parts alone"


def test_slices_on_demand_leave_whole_gpus_and_large_slices() -> None:
    """One after the other they fill the GPU that is begun; the first goes where it spoils the least."""
    node = offered(0, 1)
    topology_class, free, taken = TopologyClass(node), (1 << len(node.devices)) - 1, list[str]()
    for _ in range(7):
        verdict = decide(Situation(topology_class, free, mig=MigStrategy.MIXED), GpuRequest(1, profile="1g.10gb"))
        taken += names(node, verdict)
        free &= ~topology_class.excluding(mask(node, taken[-1]))
    assert sorted(taken) == [f"MIG-0-1g.10gb-{start}" for start in range(7)]
    assert taken[0] == "MIG-0-1g.10gb-6", "no slice of 2g would fit there"
    assert free >> 1 & 1 and not free & 1


def test_a_pod_gets_no_two_slices_that_overlap() -> None:
    """Though both are free."""
    node = replace(offered(0), slices=(*offered(0).slices, *offered(1).slices[:1]))
    overlapping = replace(node.slices[0], uuid="MIG-twin", start=0, size=2, gpu_instance=99)
    node = replace(node, slices=(node.slices[0], overlapping))
    assert isinstance(ask(node, 0b11, "1g.10gb"), Placement)
    refused = ask(node, 0b11, "1g.10gb", count=2)
    assert isinstance(refused, Rejection) and refused.reason is Reason.TOO_FEW_FREE


def test_choices_that_differ_in_one_gpu_are_worked_out_for_that_one_alone() -> None:
    """Thousands of nodes do, and so do plans for one pod after another."""
    node = offered(*range(GPUS))
    topology_class, every = TopologyClass(node), (1 << len(node.devices)) - 1
    request = GpuRequest(3, profile="1g.10gb")
    decide(Situation(topology_class, every, mig=MigStrategy.MIXED), request)
    before = topology_class.news
    for taken in (node.devices[-1], node.devices[-2]):
        free = every & ~topology_class.excluding(mask(node, taken))
        assert isinstance(decide(Situation(topology_class, free, mig=MigStrategy.MIXED), request), Placement)
    assert topology_class.news == before + 4, "two choices, each with the ways of one GPU"


def test_without_steps_left_in_a_call_slices_are_undecided() -> None:
    """Searches on other machines may have taken all."""
    effort, node = Effort(), offered(0)
    topology_class = TopologyClass(node, effort=effort)
    with effort.bounded(0):
        situation = Situation(topology_class, (1 << len(node.devices)) - 1, mig=MigStrategy.MIXED)
        assert decide(situation, GpuRequest(1, profile="1g.10gb")) is UNDECIDED
