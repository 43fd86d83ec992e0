"""Whose share gives way to the pod that has it, and when a share of a pod that is gone is given again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.binding.correction import correct
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from tests.extender.builders import claim, cluster, gpus, pod, running
from tests.extender.shares import Seen, share, sharer, sharing, sharing_node
from topology.annotations.records import Claim

A, B, *_ = gpus("n1", *range(8))
STRAY = sharer("p", 10, on="n1", phase="Running", terminated=False)
"""Somebody else has bound it."""


def corrected(*objects: Node | Pod) -> tuple[dict[str, list[str]], set[str]]:
    """Return which pods move to which GPUs now, and who loses claims to them unbound."""
    correction = correct(cluster(*objects).views["n1"])
    return {held.pod.uid: sorted(held.gpus) for held in correction.holdings}, set(correction.displaced)


@pytest.mark.parametrize(
    ("claims", "others", "displaced"),
    [
        ((), (), ""),
        ((share(A, "q", 20),), (sharer("q", 20),), ""),
        ((share(A, "q", 30),), (sharer("q", 30),), ""),
        ((share(A, "q", 31),), (sharer("q", 31),), "q"),
        ((share(A, "q", 1, "dev"),), (sharer("q", 1, sharing_class="dev"),), "q"),
        ((claim(A, "q"),), (pod("q"),), "q"),
        ((share(A, "q", 20),), (sharing("q", A, 20),), ""),
    ],
)
def test_a_share_that_was_seen_displaces_only_what_cannot_be_beside_it(
    claims: tuple[Claim, ...], others: tuple[Pod, ...], displaced: str
) -> None:
    """Unbound pods of another class, with the GPU as a whole, or with more of it than is left of its 40 GiB."""
    node = sharing_node(*claims, seen={A: {"p": 10}})
    assert corrected(node, STRAY, *others) == ({"p": [A]}, set(displaced))


@pytest.mark.parametrize(
    ("claims", "others"),
    [
        ((share(A, "q", 31),), (sharing("q", A, 31),)),
        ((share(A, "q", 1, "dev"),), (sharing("q", A, 1, "dev"),)),
        ((claim(A, "q"),), (running("q", "n1", A),)),
        ((claim(A, "unheard-of"),), ()),
        ((share(A, "unheard-of", 1, "dev"),), ()),
    ],
)
def test_a_share_waits_for_bound_pods_and_for_those_that_nobody_has_heard_of(
    claims: tuple[Claim, ...], others: tuple[Pod, ...]
) -> None:
    """A conflict is for people to end, and absence from a cache proves nothing."""
    assert corrected(sharing_node(*claims, seen={A: {"p": 10}}), STRAY, *others) == ({}, set())


def standing(before: Seen, after: Seen, *, namesake: Pod | None = None, writes: int = 2) -> Standing:
    """Return that of the 10 GiB of a pod which was deleted by force, after so many more reports of the agent."""
    claims = [replace(share(A, "old", 10), name="p")]
    if namesake is not None:
        claims.append(replace(share(A, "new", 10), name="p"))
    state = cluster(sharing_node(*claims, seen=before), sharing("p", A, uid="old"))
    state.pods.deleted(sharing("p", A, uid="old", version=2))
    if namesake is not None:
        state.pods.changed(namesake)
    state.set_baseline("n1", claims[0])
    state.nodes.changed(sharing_node(*claims, seen=after, reports=1 + writes, version=2))
    return dict(state.views["n1"].claims)[claims[0]]


def test_a_share_is_free_once_none_of_its_name_is_seen_on_the_gpu() -> None:
    """Others may well be there; with whole GPUs nobody may."""
    others = {A: {"q": 5}}
    assert standing({A: {"p": 10, "q": 5}}, others, writes=1) is Standing.FREE
    assert standing(others, others, writes=2) is Standing.FREE
    assert standing(others, others, writes=1) is Standing.GONE
    assert standing({A: {"p": 10, "q": 5}}, {A: {"p": 10}}) is Standing.GONE


def test_a_namesake_on_the_same_gpu_frees_the_share_if_all_that_is_seen_is_its_own() -> None:
    """It ran by the time of the first report; before, what is seen may be the former's."""
    new = sharing("p", A, uid="new")
    assert standing({A: {"p": 20}}, {A: {"p": 10}}, namesake=new) is Standing.FREE
    assert standing({A: {"p": 20}}, {A: {"p": 20}}, namesake=new) is Standing.GONE
    waiting = sharer("p", 10, on="n1", gpu=A, uid="new")
    assert standing({A: {"p": 20}}, {A: {"p": 10}}, namesake=waiting) is Standing.GONE


def test_a_ledger_that_somebody_changed_keeps_the_shares_beside_ours() -> None:
    """Theirs have to be looked into; what cannot be beside ours is not kept."""
    state = ClusterState()
    ours, theirs = share(A, "p", 10), (share(A, "q", 5), share(A, "r", 5, "dev"), claim(B, "s"))
    state.nodes.replaced([sharing_node(ours, generation=2)])
    state.nodes.changed(sharing_node(*theirs[1:], generation=2, version=2))
    known = state.nodes.get("n1")
    assert known and known.payloads.ledger.value
    assert set(known.payloads.ledger.value.claims) == {ours, claim(B, "s")}
    state.nodes.changed(sharing_node(theirs[0], generation=2, version=3))
    known = state.nodes.get("n1")
    assert known and known.payloads.ledger.value
    assert set(known.payloads.ledger.value.claims) == {ours, theirs[0], claim(B, "s")}
