"""The index answers as if every node had been looked at."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.caches.tombstones import Tombstones
from extender.cluster.candidates.holds import Held, Hold, Holds
from extender.cluster.candidates.offers import Offers
from extender.cluster.candidates.shape import Shape, in_steps
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.objects.gpu_pods import GpuPod
from tests.extender.builders import PAIRS, pod
from tests.security.worst_topology import random_topology
from topology.effort import Effort
from topology.formats.catalog import machine
from topology.placement.shares import SharedGpu, Shares
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile, PodKind

NAMES = tuple(f"n{number}" for number in range(12))
CLASSES = tuple(TopologyClass(machine(name)) for name in (PAIRS, "dgx-a100"))
REQUEST = GpuRequest(2)
SHARE = GpuRequest(0, memory_gib=(10,))

shapes = st.one_of(
    st.none(),
    st.just(Shape(None, 0, "closed")),
    st.builds(Shape, st.sampled_from(CLASSES), st.integers(0, 255)),
    st.builds(Shape, st.just(CLASSES[1]), st.integers(0, 255), doubtful=st.integers(0, 255)),
    st.builds(
        lambda free, left: Shape(CLASSES[1], free, shares=Shares((40,) * 8, (SharedGpu(7, left),), free & 0b1)),
        st.sampled_from((0b11, 0b111)),
        st.integers(0, 20),
    ),
)


def naive_order(nodes: dict[str, Shape], names: frozenset[str], request: GpuRequest = REQUEST) -> list[str]:
    """Plan for each node on its own, then sort."""
    keys = []
    for name in names.intersection(nodes):
        verdict = nodes[name].decide(request)
        if isinstance(verdict, Placement):
            doubts = sum(nodes[name].doubtful >> position & 1 for position in verdict.gpus)
            keys.append((-verdict.score, doubts, nodes[name].free.bit_count(), name))
    return [name for *_, name in sorted(keys)]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(NAMES), shapes), max_size=60), st.frozensets(st.sampled_from(NAMES)))
def test_the_order_is_that_of_all_nodes_sorted(puts: list[tuple[str, Shape | None]], names: frozenset[str]) -> None:
    """Whatever came and went before, and whenever it was asked in between."""
    index, nodes = ShapeIndex(), dict[str, Shape]()
    for name, shape in puts:
        index.put(name, shape)
        nodes.pop(name, None)
        if shape is not None:
            nodes[name] = shape
        for request in (REQUEST, SHARE):
            order = index.order(request)
            assert [found for *_, found in order.best_first(names)] == naive_order(nodes, names, request)
            assert [*order.best_of(names, index.bucket_of)] == [*order.best_first(names)]


def test_the_last_node_of_its_class_is_named_no_more_when_it_has_left() -> None:
    """Its class is let go of in the same moment."""
    index = ShapeIndex()
    for shape in (Shape(CLASSES[1], 0b1110001), Shape(CLASSES[1], 0b10001011), None):
        index.put("n0", shape)
        found = [name for *_, name in index.order(REQUEST).best_first(frozenset({"n0"}))]
        assert found == (["n0"] if shape else [])


def test_the_order_survives_that_nodes_which_share_never_look_the_same_again() -> None:
    """Each move of one makes a shape; the index is not the larger for it, and what fits stays in order."""
    index, nodes = ShapeIndex(), {}
    for number in range(3_000):
        name = f"n{number % 7}"
        nodes[name] = Shape(CLASSES[1], 0b11, shares=Shares((5_000,) * 8, (SharedGpu(7, number),), 0b1))
        index.put(name, nodes[name])
        for request in (REQUEST, SHARE) if number % 50 == 0 else ():
            found = [found for *_, found in index.order(request).best_first(frozenset(nodes))]
            assert found == naive_order(nodes, frozenset(nodes), request)
    assert len(index) < 1100


@given(st.integers(1, 255), st.integers(1, 32), st.integers(1, 2))
def test_gpus_with_just_the_cpu_that_pods_ask_for_lack_none(free: int, cores: int, size: int) -> None:
    """The steps in which idle CPU is told apart make no node look short of it."""
    kinds = [(PodKind(gpus, cpu_milli=1000 * cores * gpus), 0.5) for gpus in (1, 2)]
    idle = 1000 * cores * free.bit_count()
    enough, plenty = (Shape(CLASSES[0], free, cpu_milli=in_steps(cpu_milli)) for cpu_milli in (idle, 10 * idle))
    request = GpuRequest(size, cpu_milli=1000 * cores * size)
    scores = [shape.decide(request, DemandProfile(kinds)) for shape in (enough, plenty)]
    assert scores[0] == scores[1]


def test_shapes_that_nobody_has_any_more_are_forgotten() -> None:
    """One node that changes all the time does not make the index grow without end."""
    index = ShapeIndex()
    index.put("still", Shape(CLASSES[0], 0b11))
    for number in range(5000):
        index.put("restless", Shape(CLASSES[1], 0b1111, f"reason {number}"))
    assert len(index) < 1100
    assert [name for *_, name in index.order(REQUEST).best_first(frozenset({"still", "restless"}))] == ["still"]


def test_nobody_searches_for_a_node_that_is_closed() -> None:
    """Its topology may stay known, as pods hold GPUs there; a search for the next pod would be in vain, and may take minutes."""
    effort, index = Effort(), ShapeIndex()
    unlike = TopologyClass(random_topology(Random(1), 16), effort=effort)
    index.put("restless", Shape(unlike, 0xFFFF))
    with effort.bounded():
        index.order(GpuRequest(8))
    assert len(effort) == 1
    index.put("restless", Shape(unlike, 0xFFFF, "changes too often"))
    before = unlike.meter.steps
    assert len([*effort.work()]) == 1
    assert unlike.meter.steps == before


def test_orders_of_requests_are_bounded() -> None:
    """Old ones are made again when somebody asks."""
    index = ShapeIndex()
    index.put("n1", Shape(CLASSES[0], 0b11))
    for number in range(1000):
        index.order(GpuRequest(1, min_memory_bytes=number))
    assert len(index._orders) == 256
    first = index.order(GpuRequest(1, min_memory_bytes=0))
    assert [name for *_, name in first.best_first(frozenset({"n1"}))] == ["n1"]


def test_a_namespace_with_ever_new_requests_leaves_the_orders_of_the_others() -> None:
    """They would have to decide on every shape again, in every call."""
    index = ShapeIndex()
    index.put("n1", Shape(CLASSES[0], 0b11))
    theirs = [index.order(GpuRequest(2, cpu_milli=number), "good") for number in range(100)]
    for number in range(1000):
        index.order(GpuRequest(1, cpu_milli=number), "evil")
    assert [index.order(GpuRequest(2, cpu_milli=number), "good") for number in range(100)] == theirs


def test_tombstones_are_bounded() -> None:
    """A pod that is forgotten is one that was never seen: its claims are looked up live."""
    tombstones = Tombstones(limit=2)
    for number in range(3):
        tombstones.put(GpuPod(pod(f"p{number}", on="n1"), 1, None, stopped=True), gone=True, final=True)
    assert (tombstones.find("p0"), tombstones.has_stopped(("ml", "p0"), "n1")) == (None, False)
    assert tombstones.find("p2") is not None
    assert tombstones.has_stopped(("ml", "p2"), "n1")


def test_the_last_tombstone_of_a_name_counts() -> None:
    """A namesake that was deleted while it ran may still hold what the agent sees."""
    tombstones = Tombstones()
    tombstones.put(GpuPod(pod("p", uid="first", on="n1"), 1, None, stopped=True), gone=True)
    tombstones.put(GpuPod(pod("p", uid="second", on="n1"), 1, None), gone=True)
    assert not tombstones.has_stopped(("ml", "p"), "n1")


def test_offers_are_bounded() -> None:
    """A forgotten pod starts again with the best."""
    index, offers = ShapeIndex(), Offers(limit=2)
    index.put("n1", Shape(CLASSES[0], 0b11))
    for uid in ("a", "b", "c"):
        offers.add(uid, ["n1"], index)
    assert [offers.refused(uid, index) for uid in ("a", "b", "c")] == [frozenset(), {"n1"}, {"n1"}]


def test_holds_add_up_per_node() -> None:
    """Each pod has one, the newest."""
    holds = Holds()
    for uid, node, gpus in (("a", "n1", 1), ("a", "n1", 2), ("b", "n1", 4), ("c", "n2", 8)):
        holds.put(uid, Hold(node, gpus, 10.0))
    assert holds.others("c", 0.0) == {"n1": Held(0b110)}
    assert (holds.own("a", "n1", 0.0), holds.own("a", "n2", 0.0), holds.own("a", "n1", 10.0)) == (2, 0, 0)
    assert (holds.others("x", 10.0), len(holds)) == ({}, 0)
