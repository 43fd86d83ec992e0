"""What is derived from nodes and pods goes when they go, and follows what is said of them."""

from __future__ import annotations

from collections import Counter

from extender.cluster.caches.node_cache import NodeCache
from extender.cluster.candidates.shape import Shape
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.candidates.values import Values
from extender.cluster.ownership.standing import Standing
from tests.extender.builders import claim, cluster, free, gpus, node, pod, running
from topology.formats.catalog import machine
from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import TopologyClasses
from topology.request.domains import Location
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import PodKind
from topology.value.score import Weights

G = gpus("n1", *range(8))
CLASS = TopologyClass(machine("rtx-3090-2"))
ONE, TWO = PodKind(1), PodKind(2)


def test_what_was_claimed_on_a_node_that_is_gone_is_claimed_nowhere() -> None:
    """And nothing is known of its ledger any more."""
    state = cluster(node(claims=(claim(G[0], "p"), claim(G[1], "p"), claim(G[2], "q"))), pod("p"))
    assert (state.claimed_on("p"), state.claimed_on("r")) == ({"n1"}, ())
    state.nodes.changed(node(claims=(claim(G[1], "p"),), generation=2, version=2))
    assert (state.claimed_on("p"), state.claimed_on("q")) == ({"n1"}, ())
    state.nodes.replaced([])
    assert (state.claimed_on("p"), dict(state.views), state._views._claimed_on) == ((), {}, {})


def test_a_node_that_is_gone_waits_for_no_fence() -> None:
    """A new one of its name begins anew."""
    state = cluster(node(claims=None))
    assert state.views and state.fences.is_needed("n1")
    state.nodes.deleted(node(claims=None))
    assert not state.views and not state.fences.is_needed("n1")


def test_a_new_baseline_counts_at_once() -> None:
    """What a report had shown free is doubted again until the next one."""
    claims = (claim(G[0], "p"),)
    state = cluster(node(claims=claims))
    state.pods.changed(running("p", "n1", G[0]))
    state.pods.deleted(running("p", "n1", G[0], version=2))

    def standing() -> Standing:
        return state.views["n1"].claims[0][1]

    assert standing() is Standing.GONE
    state.set_baseline("n1", claims[0])
    state.set_baseline("nowhere", claims[0])
    state.nodes.changed(node(claims=claims, reports=3, version=2))
    assert standing() is Standing.FREE
    assert 0 in free(state)
    state.set_baseline("n1", claims[0])
    assert standing() is Standing.GONE
    assert 0 not in free(state)


def test_of_a_node_that_nobody_knows_nothing_was_asked() -> None:
    """It may have vanished between two steps."""
    state = cluster(node())
    assert not state.is_asked("nowhere", claim(G[0], "p"))
    assert not state.has_baseline("nowhere", claim(G[0], "p"))


def test_what_is_missed_of_nodes_is_told() -> None:
    """A list may leave out versions, and so may a live read that shows no whole ledger; an event leaves out none."""
    missed: list[str | None] = []
    nodes = NodeCache(TopologyClasses(Weights()), lambda name: None, missed.append)
    nodes.replaced([node()])
    assert missed == [None]
    nodes.changed(node(version=2))
    nodes.learn(node(version=3))
    nodes.learn(node("unknown"))
    nodes.learn(node(uid="another", version=4))
    assert missed == [None]
    nodes.learn(node(claims=None, version=5))
    assert missed == [None, "n1"]
    nodes.deleted(node(uid="another"))
    assert "n1" in list(nodes)
    nodes.deleted(node())
    assert (missed, list(nodes), nodes.locations) == ([None, "n1", "n1"], [], {})


def test_a_pod_is_learnt_from_once_and_runs_while_it_has_its_gpus() -> None:
    """However often it is heard of; whoever asks unreadably teaches nothing."""
    values = Values(TopologyClasses(Weights()), Weights(), lambda: None)
    for uid, kind, is_running in (
        ("a", ONE, False),
        ("a", ONE, True),
        ("a", ONE, True),
        ("b", TWO, True),
        ("c", None, True),
    ):
        values.meet(uid, kind, running=is_running)
    demand = values._demand
    assert (dict(demand._kinds.items()), +demand._running, demand._ended) == ({ONE: 1, TWO: 1}, {1: 1, 2: 1}, {})
    values.meet("a", ONE, running=False)
    values.meet("a", ONE, running=False)
    assert (+demand._running, demand._ended) == ({2: 1}, {1: 1})
    for uid in ("b", "b", "c", "never met"):
        values.forget(uid)
    assert (+demand._running, demand._ended, values._met, values._running) == ({}, {1: 1, 2: 1}, {"a": ONE}, set())


def test_only_pods_that_are_bound_and_have_not_stopped_hold_gpus() -> None:
    """As the pods of a cluster teach it."""
    state = cluster(node(), pod("waits"), running("runs", "n1", G[0]), running("stops", "n1", G[1]))
    demand = state.values._demand
    assert +demand._running == {1: 2}
    state.pods.changed(pod("stops", on="n1", phase="Succeeded", terminated=True, version=2))
    assert (+demand._running, demand._ended) == ({1: 1}, {1: 1})


def test_empty_buckets_stay_for_a_while_and_not_for_ever() -> None:
    """Masks come back; but not all that there ever were are remembered."""
    index = ShapeIndex()
    for free_mask in range(900):
        index.put("n1", Shape(CLASS, free_mask))
    assert len(index) == 900
    for free_mask in range(900, 3000):
        index.put("n1", Shape(CLASS, free_mask))
    assert len(index) <= 1003


def test_a_shape_that_comes_back_after_it_was_forgotten_is_ranked_again() -> None:
    """Its bucket is a new one."""
    index, request = ShapeIndex(), GpuRequest(1)
    index.put("n1", Shape(CLASS, 0b11))
    index.put("n1", Shape(CLASS, 0b01))
    index.forget_verdicts()
    index.put("n1", Shape(CLASS, 0b11))
    assert [name for *_, name in index.order(request).best_first(frozenset({"n1"}))] == ["n1"]
    index.put("n1", Shape(CLASS, 0b11))
    assert len(index) == 2
    index.put("n1", None)
    assert list(index.order(request).best_first(frozenset({"n1"}))) == []
    assert index.bucket_of("n1") is None


def test_what_fits_adds_up_over_the_nodes_of_a_place() -> None:
    """Each node takes as many pods as its shape."""
    index, rack, nowhere = ShapeIndex(), Location(rack="r"), Location()
    places = {"a": rack, "b": rack, "c": rack, "d": nowhere, "e": nowhere}
    for name in "abd":
        index.put(name, Shape(CLASS, 0b11))
    index.put("c", Shape(CLASS, 0b01))
    index.put("e", Shape(CLASS, 0b00))
    order = index.order(GpuRequest(1))
    census = order.census(frozenset("abcdex"), places)
    assert {shape.shape.free: dict(counts) for shape, counts in census} == {
        0b11: {rack: 2, nowhere: 1},
        0b01: {rack: 1},
    }
    assert order.fitting(census) == Counter({rack: 5, nowhere: 2})
    assert order.fitting(order.census(frozenset("c"), places)) == {rack: 1}
    assert order.fitting(()) == {}


def test_a_pod_with_claims_on_two_nodes_keeps_those_of_the_other_one() -> None:
    """A bind to one was given up, and one to another begun."""
    state = cluster(node(claims=(claim(G[0], "p"),)), node("n2", claims=(claim(gpus("n2", 0)[0], "p"),)), pod("p"))
    assert state.claimed_on("p") == {"n1", "n2"}
    state.nodes.changed(node(generation=2, version=2))
    assert state.claimed_on("p") == {"n2"}
