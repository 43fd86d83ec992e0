"""What a node's view says of claims, of what is left behind, and of what would be free without some pods."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from extender.cluster.candidates.holds import Held
from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.victims import Candidate
from tests.extender.builders import DGX, claim, cluster, gpus, node, pod, running
from topology.annotations.codec import encode_topology
from topology.formats.catalog import machine
from topology.placement.verdict import UNKNOWN_GPUS
from topology.request.gpu_request import GpuRequest

G = gpus("n1", *range(8))


def view(*objects: Node | Pod) -> NodeView:
    return cluster(*objects).views["n1"]


def positions(mask: int) -> set[int]:
    return {position for position in range(8) if mask >> position & 1}


def free_without(found: NodeView, uids: set[str]) -> set[int]:
    """Return what would be free if these pods were evicted."""
    return positions(Candidate(found, pod("vip", priority=1), GpuRequest(8), Counter(), ())._free_without(uids))


@pytest.mark.parametrize(
    ("claims", "settled"), [((), True), (("p",), True), (("p", "unbound"), False), (("unbound",), False)]
)
def test_a_node_is_settled_if_all_of_its_claims_are_held(claims: tuple[str, ...], *, settled: bool) -> None:
    """One that is not is looked into."""
    listed = tuple(claim(gpu, uid) for gpu, uid in zip(G, claims, strict=False))
    assert view(node(claims=listed), running("p", "n1", G[0]), pod("unbound")).settled is settled


def test_what_a_pod_that_is_gone_has_beside_its_claims_is_left_behind() -> None:
    """The agent saw it with more; not so, if another one of that name is there, whose it may be."""
    state = cluster(node(claims=(claim(G[0], "old"),)))
    state.pods.changed(pod("old", on="n1", phase="Running"))
    state.pods.deleted(pod("old", on="n1", phase="Running", version=2))
    state.nodes.changed(node(claims=(claim(G[0], "old"),), held={G[0]: "old", G[1]: "old"}, version=2))
    assert [(each.gpu, each.uid) for each in state.views["n1"].unledgered] == [(G[1], "old")]
    state.pods.changed(pod("old", 2, uid="namesake", on="n1", phase="Running"))
    assert "old" not in {each.uid for each in state.views["n1"].unledgered}


def test_what_is_held_for_others_is_nothing_unless_said() -> None:
    """All of an empty node can be had, one after the other, and none of what is held."""
    empty = view(node())
    assert empty.how_many_fit("new", GpuRequest(1)) == 8
    assert empty.how_many_fit("new", GpuRequest(1), Held(0b111)) == 5
    assert getattr(empty.decide_for("new", GpuRequest(8)), "gpus", None) is not None
    assert getattr(empty.decide_for("new", GpuRequest(8), Held(0b1)), "gpus", None) is None


def test_without_a_pod_all_that_it_had_is_free_and_nothing_else() -> None:
    """Its claims, what its record names, and what the agent saw with it."""
    found = view(
        node(claims=(claim(G[0], "p"), claim(G[1], "q"), claim(G[2], "unbound")), held={G[4]: "p", G[5]: "whoever"}),
        running("p", "n1", G[3]),
        running("q", "n1", G[6]),
        pod("unbound"),
    )
    assert positions(found.shape.free) == {7}
    assert free_without(found, {"p"}) == {0, 3, 4, 7}
    assert free_without(found, {"q"}) == {1, 6, 7}
    assert free_without(found, {"p", "q"}) == {0, 1, 3, 4, 6, 7}
    assert free_without(found, {"unbound"}) == {2, 7}
    assert free_without(found, set()) == {7}


def test_what_a_record_names_stays_taken_though_its_pod_was_seen_elsewhere() -> None:
    """Until the record says the same."""
    state = cluster(node(claims=(claim(G[0], "p"),)))
    state.pods.changed(pod("p"))
    state.pods.changed(running("p", "n1", G[1], version=2))
    state.nodes.changed(node(claims=(claim(G[0], "p"),), held={G[0]: "p"}, version=2))
    assert free_without(state.views["n1"], set()) == set(range(2, 8))
    assert free_without(state.views["n1"], {"p"}) == set(range(8))


def test_without_a_pod_what_nobody_may_have_stays_so() -> None:
    """A sick GPU does not get well by an eviction."""
    found = view(node(claims=(claim(G[0], "p"),), sick=(G[0], G[1])), running("p", "n1", G[0]))
    assert free_without(found, {"p"}) == set(range(2, 8))


def test_a_pod_keeps_exactly_its_claims_as_long_as_they_serve() -> None:
    """Fewer than it asks for do not, and what has fallen sick does not either."""
    claims = (claim(G[5], "p"), claim(G[6], "p"))
    for sick, count, expected in (((), 2, {5, 6}), ((G[5],), 2, {0, 1}), ((), 1, None)):
        found = view(node(claims=claims, sick=sick), pod("p", 2))
        planned = set(getattr(found.decide_for("p", GpuRequest(count)), "gpus", ()))
        assert planned == expected or (expected is None and len(planned) == 1)
        assert not planned & {G.index(gpu) for gpu in sick}


def test_a_pods_own_claims_are_free_for_itself() -> None:
    """Where they are too few, it takes others beside them."""
    found = view(node(claims=(claim(G[0], "p"),)), pod("p", 8))
    assert positions(found.shape.free) == set(range(1, 8))
    assert set(getattr(found.decide_for("p", GpuRequest(8)), "gpus", ())) == set(range(8))
    assert getattr(found.decide_for("q", GpuRequest(8)), "gpus", None) is None


@pytest.mark.parametrize("position", [0, 5])
def test_a_gpu_that_was_cut_when_the_node_was_discovered_is_not_free(position: int) -> None:
    """The topology says so, whether or not the status does."""
    topology = machine(DGX, host="n1")
    cut = tuple(replace(gpu, mig_enabled=at == position) for at, gpu in enumerate(topology.gpus))
    found = view(node(topology=encode_topology(replace(topology, gpus=cut))))
    assert positions(found.shape.free) == set(range(8)) - {position}
    without_status = view(node(topology=encode_topology(replace(topology, gpus=cut)), status=None))
    assert positions(without_status.fit) == set(range(8)) - {position}


def test_nothing_is_said_of_nodes_before_nodes_and_pods_were_listed() -> None:
    """Until then a GPU without a known owner proves nothing."""
    state = ClusterState()
    state.nodes.replaced([node()])
    assert (dict(state.views), state.synced) == ({}, False)
    state.pods.replaced([])
    assert (list(state.views), state.synced) == (["n1"], True)


def test_a_node_is_unsettled_amiss_or_in_quarantine_as_long_as_it_is() -> None:
    """And no longer."""
    state = cluster(node(claims=(claim(G[0], "p"),)), pod("p"), running("q", "n1", G[1]), running("r", "n1", G[1]))
    conditions = state.conditions
    assert (conditions.unsettled, conditions.amiss, conditions.in_conflict) == ({"n1"}, {"n1"}, {"n1"})
    state.pods.changed(running("p", "n1", G[0], version=2))
    for name in ("q", "r"):
        state.pods.changed(pod(name, on="n1", placed=(G[1],), phase="Failed", terminated=True, version=2))
    conditions = state.conditions
    assert (conditions.unsettled, conditions.amiss, conditions.in_conflict) == (set(), set(), set())


@pytest.mark.parametrize(("phase", "conflicts"), [("Running", {G[1]}), ("Pending", set()), (None, set())])
def test_a_pod_that_has_not_started_is_in_no_conflict_over_a_gpu_that_was_seen_with_another(
    phase: str | None, conflicts: set[str]
) -> None:
    """Its node will give it others; one that runs has it, whatever was seen."""
    state = cluster(node(claims=(claim(G[0], "q"),)))
    state.pods.changed(pod("q"))
    state.pods.changed(running("q", "n1", G[0], version=2))
    state.pods.changed(pod("r", on="n1", placed=(G[1],), phase=phase))
    state.nodes.changed(node(claims=(claim(G[0], "q"),), held={G[1]: "q"}, version=2))
    assert set(state.views["n1"].conflicts) == conflicts


def test_a_pod_that_asks_unreadably_closes_its_node_and_nothing_more() -> None:
    """How many GPUs it has nobody knows."""
    found = view(node(), pod("p", "many", on="n1"))
    assert (found.unledgered, found.shape.closed) == ((), UNKNOWN_GPUS)


def test_dead_claims_take_nothing_from_what_is_free_without_others() -> None:
    """Their pods have stopped."""
    ended = pod("dead", on="n1", phase="Succeeded", terminated=True)
    found = view(node(claims=(claim(G[0], "dead"), claim(G[1], "p"))), ended, running("p", "n1", G[1]))
    assert free_without(found, set()) == set(range(8)) - {1}
