"""Deciding on shapes in slices, once for all that are alike to a request, changes no answer."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.candidates.shape import Shape
from extender.cluster.candidates.shape_index import SHAPE_STEPS, SLICES_STEPS, Order, ShapeIndex
from tests.extender.cluster.candidates.test_shape_index import CLASSES, NAMES, REQUEST, SHARE, naive_order, shapes
from tests.security.worst_topology import random_topology
from topology.effort import Allowance, Effort
from topology.node.alignment import Policy, TopologyManager
from topology.node.slices import Slice
from topology.node.status import MigStrategy
from topology.placement.decide import Decision
from topology.placement.shares import NO_SHARES, SharedGpu, Shares
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED
from topology.request.domains import Location
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile, PodKind

ANYWHERE = dict.fromkeys(NAMES, Location())
MANAGERS = (None, None, TopologyManager(Policy.SINGLE_NUMA_NODE))
PROFILE = DemandProfile([(PodKind(1, cpu_milli=4000), 0.5), (PodKind(2, cpu_milli=8000), 0.5)])

all_sorts = st.builds(
    Shape,
    st.sampled_from(CLASSES),
    st.sampled_from((0b11, 0b1111, 0b11110000)),
    st.sampled_from((None, None, None, "closed")),
    doubtful=st.sampled_from((0, 0b1, 0b110000)),
    hidden=st.sampled_from((0, 1)),
    plugin_chooses=st.booleans(),
    topology_manager=st.sampled_from(MANAGERS),
    perhaps_free=st.sampled_from((0b11, 0b1111)),
    cpu_milli=st.sampled_from((None, 4000, 64_000)),
    shares=st.sampled_from((NO_SHARES, Shares((40,) * 8, (SharedGpu(7, 20),), 0b11))),
)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), shapes, st.integers(0, 3)), max_size=40),
    st.frozensets(st.sampled_from(NAMES)),
)
def test_what_is_decided_in_slices_is_what_every_node_for_itself_would_get(
    puts: list[tuple[str, Shape | None, int]], names: frozenset[str]
) -> None:
    """Nodes come, change and leave between the slices; the order of nodes and how many pods fit are those of brute force."""
    index, nodes = ShapeIndex(), dict[str, Shape]()
    for name, shape, at_most in puts:
        index.put(name, shape)
        nodes.pop(name, None)
        if shape is not None:
            nodes[name] = shape
        for request in (REQUEST, SHARE):
            index.prepare(request, at_most, counts=True)
    for request in (REQUEST, SHARE):
        order = index.order(request)
        assert [found for *_, found in order.best_first(names)] == naive_order(nodes, names, request)
        each = [nodes[name].how_many_fit(request)[0] for name in names.intersection(nodes)]
        assert order.fitting(order.census(names, ANYWHERE)).total() == sum(each)


@pytest.mark.slow
@settings(max_examples=300)
@given(all_sorts, all_sorts, st.sampled_from((REQUEST, SHARE)), st.booleans())
def test_shapes_that_are_alike_to_a_request_get_one_verdict(
    one: Shape, other: Shape, request: GpuRequest, counts: bool
) -> None:
    """And as many pods fit there: whatever makes a difference is part of what the request sees."""
    to_come = PROFILE if counts else None
    seen = one.seen_by(request, counts=counts)
    for field in fields(Shape):
        changed = replace(one, **{field.name: getattr(other, field.name)})
        if seen is not None and seen == changed.seen_by(request, counts=counts):
            assert one.decide(request, to_come) == changed.decide(request, to_come)
            assert counts or one.how_many_fit(request) == changed.how_many_fit(request)


def test_all_slices_of_a_call_share_one_allowance() -> None:
    """However many slices there are, the searches in them take no longer than in one go."""
    effort, index, allowance = Effort(), ShapeIndex(), Allowance(3_000)
    searched = [TopologyClass(random_topology(Random(seed), 16), effort=effort) for seed in range(4)]
    for number, each in enumerate(searched):
        index.put(f"n{number}", Shape(each, 0xFFFF))
    before = sum(each.meter.steps for each in searched)
    for _ in searched:
        with effort.bounded(allowance):
            index.prepare(GpuRequest(8), 1)
    assert index.prepare(GpuRequest(8), 1)
    assert 3_000 <= sum(each.meter.steps for each in searched) - before < 4_500


@pytest.mark.parametrize("kinds", [1, 60])
def test_a_slice_is_the_shorter_the_more_kinds_of_pods_each_shape_is_valued_for(kinds: int) -> None:
    """What others make up must not lengthen it."""
    index, steps, slices = ShapeIndex(), 20 * SHAPE_STEPS, 1
    for number in range(40):
        shares = Shares((100,) * 8, (SharedGpu(7, 1 + number),), 0)
        index.put(f"n{number}", Shape(CLASSES[0], 0b1111, cpu_milli=4000, shares=shares))
    index.forget_verdicts([(PodKind(1, cpu_milli=number), 1 / kinds) for number in range(kinds)])
    profile = index.like().order(SHARE).to_come(Shape(CLASSES[0], 0b1, shares=Shares((100,) * 8)))
    assert profile is not None
    before, costs = profile.meter.steps, list[int]()
    while not index.prepare(SHARE, steps):
        slices += 1
        costs.append(profile.meter.steps - before)
        before = profile.meter.steps
    assert costs and all(cost <= steps for cost in costs)
    assert (slices > 2) == (kinds == 60)


def test_how_many_pods_fit_is_counted_for_fewer_shapes_at_once_where_more_fit() -> None:
    """Each is a decision; machines of many GPUs take many pods."""
    slices = []
    for taken in (0b11111100, 0):
        index = ShapeIndex()
        for number in range(20):
            index.put(f"n{number}", Shape(CLASSES[0], 0xFF & ~taken, cpu_milli=4000 * number))
        request, steps = GpuRequest(1), 10 * SHAPE_STEPS
        index.order(request)
        slices.append(1)
        while not index.prepare(request, steps, counts=True):
            slices[-1] += 1
    assert slices[1] >= 2 * slices[0]


def test_a_shape_is_asked_about_again_when_its_class_has_found_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in between cost nothing, however many nodes wait for an answer."""
    effort, index = Effort(), ShapeIndex()
    index.put("n0", Shape(TopologyClass(random_topology(Random(1), 8), effort=effort), 0xFF))
    asked, decide = list[Shape](), Shape.decide

    def counted(shape: Shape, *about: Any) -> Decision:
        asked.append(shape)
        return decide(shape, *about)

    monkeypatch.setattr(Shape, "decide", counted)

    def call() -> Order:
        with effort.bounded(10):
            return index.order(GpuRequest(4))

    for _ in range(5):
        assert call().verdicts == [UNDECIDED]
    assert len(asked) <= 2
    for _ in effort.work():
        pass
    assert call().verdicts != [UNDECIDED]


def test_shapes_that_are_still_to_be_decided_on_survive_that_others_are_forgotten() -> None:
    """Between two slices a node may change a thousand times, and the index forgets what nobody has any more."""
    index = ShapeIndex()
    for mask in (0b11, 0b110000, 0b1100):
        index.put(f"n{mask}", Shape(CLASSES[0], mask))
    assert not index.prepare(REQUEST, 1)
    for number in range(1_100):
        index.put("restless", Shape(CLASSES[1], 0b1111, f"reason {number}"))
    found = [name for *_, name in index.order(REQUEST).best_first(frozenset({"n3", "n48", "n12"}))]
    assert sorted(found) == ["n12", "n3", "n48"]


def test_a_slice_decides_on_fewer_shapes_with_mig_devices() -> None:
    """These are chosen without a pause."""
    part = Slice(0, "slice 0", "1g.10gb", 1 << 33, 0, 1, 0, 0, on_demand=True)
    plain, cut = CLASSES[1], TopologyClass(replace(CLASSES[1].node, slices=(part,)))
    for topology_class, calls in ((plain, 1), (cut, 10)):
        index, request = ShapeIndex(), GpuRequest(1, profile="9g.90gb")
        for free in range(1, 11):
            index.put(f"n{free}", Shape(topology_class, free, mig=MigStrategy.MIXED))
        ready = [index.prepare(request, SLICES_STEPS) for _ in range(calls)]
        assert ready == [False] * (calls - 1) + [True]
