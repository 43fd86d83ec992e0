"""What a node's view says of claims, of what is left behind, and of what would be free without some pods."""

from __future__ import annotations

from collections import Counter

import pytest

from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node, Pod
from extender.verbs.victims import Candidate
from tests.extender.builders import claim, cluster, gpus, node, pod, running
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
    assert empty.how_many_fit("new", GpuRequest(1), 0b111) == 5
    assert getattr(empty.decide_for("new", GpuRequest(8)), "gpus", None) is not None
    assert getattr(empty.decide_for("new", GpuRequest(8), 0b1), "gpus", None) is None


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
