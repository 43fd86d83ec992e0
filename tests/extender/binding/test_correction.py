"""Whose claim on a GPU gives way to the pod that has it, and whose is waited for."""

from __future__ import annotations

import pytest

from extender.binding.correction import Correction, correct
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from tests.extender.builders import claim, cluster, gpus, node, pod, running

G = gpus("n1", *range(8))


def moved(*others: Pod, owner: str, seen: bool = True) -> ClusterState:
    """Return a node where `p` holds GPU 2, which is claimed for another pod and was to be GPU 0."""
    claims = (claim(G[0], "p"), claim(G[2], owner))
    state = cluster(node(claims=claims), *others)
    state.pods.changed(pod("p"))
    state.pods.changed(running("p", "n1", G[0] if seen else G[2], version=2))
    held = {G[2]: "p"} if seen else {}
    state.nodes.changed(node(claims=claims, held=held, version=2))
    return state


def gone(state: ClusterState, name: str) -> ClusterState:
    """Delete a bound pod by force."""
    state.pods.changed(running(name, "n1", G[2]))
    state.pods.deleted(running(name, "n1", G[2], version=2))
    return state


def corrected(state: ClusterState) -> tuple[dict[str, list[str]], frozenset[str]]:
    """Return which pods move to which GPUs now, and who loses claims to them unbound."""
    correction = correct(state.views["n1"])
    return {held.pod.uid: sorted(held.gpus) for held in correction.holdings}, correction.displaced


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "by its record"])
def test_a_pod_that_was_never_heard_of_keeps_its_claim(*, seen: bool) -> None:
    """Our cache may be behind; that nobody knows the pod does not say that there is none."""
    assert corrected(moved(owner="unheard-of", seen=seen)) == ({}, frozenset())


def test_a_pod_that_is_gone_loses_its_claim_to_whom_the_agent_saw() -> None:
    """The kubelet would not have given its GPU away before."""
    assert corrected(gone(moved(owner="old"), "old")) == ({"p": [G[2]]}, frozenset())


def test_a_pod_that_is_gone_keeps_its_claim_against_a_record() -> None:
    """Nobody saw the other pod with the GPU, and containers may run on it."""
    assert corrected(gone(moved(owner="old", seen=False), "old")) == ({}, frozenset())


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "by its record"])
def test_an_unbound_pod_is_displaced(*, seen: bool) -> None:
    """It is fenced before, which is for others to do."""
    assert corrected(moved(pod("q"), owner="q", seen=seen)) == ({"p": [G[2]]}, frozenset({"q"}))


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "by its record"])
def test_a_bound_pod_is_waited_for(*, seen: bool) -> None:
    """What it has instead is not known yet."""
    owner = pod("q", on="n1", placed=(G[2],), phase="Pending")
    assert corrected(moved(owner, owner="q", seen=seen)) == ({}, frozenset())


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "by its record"])
def test_in_a_rebuild_nobody_who_is_not_bound_is_waited_for(*, seen: bool) -> None:
    """All bound pods are known by then, and all others fenced: who has the GPU came later than the claim."""
    state = moved(owner="unheard-of", seen=seen)
    state.nodes.changed(node(claims=None, held={G[2]: "p"} if seen else {}, version=3))
    assert state.views["n1"].is_broken
    assert corrected(state) == ({"p": [G[2]]}, frozenset())


def test_a_claim_on_another_gpu_is_not_waited_for() -> None:
    """Only what is moved to matters."""
    claims = (claim(G[0], "p"), claim(G[5], "unheard-of"))
    state = cluster(node(claims=claims))
    state.pods.changed(pod("p"))
    state.pods.changed(running("p", "n1", G[0], version=2))
    state.nodes.changed(node(claims=claims, held={G[2]: "p"}, version=2))
    assert corrected(state) == ({"p": [G[2]]}, frozenset())


def test_two_pods_that_were_swapped_do_not_wait_for_each_other() -> None:
    """Each has what the other one is claimed for."""
    claims = (claim(G[0], "p"), claim(G[1], "q"))
    state = cluster(node(claims=claims))
    for name, gpu in (("p", G[0]), ("q", G[1])):
        state.pods.changed(pod(name))
        state.pods.changed(running(name, "n1", gpu, version=2))
    state.nodes.changed(node(claims=claims, held={G[0]: "q", G[1]: "p"}, version=2))
    assert corrected(state) == ({"p": [G[1]], "q": [G[0]]}, frozenset())


def test_the_claims_of_a_correction_say_what_its_pods_have() -> None:
    """For each in the version that is known."""
    (fact,) = correct(gone(moved(owner="old"), "old").views["n1"]).facts
    assert fact == claim(G[2], "p", "2")


def test_unbound_pods_elsewhere_on_the_node_are_left_alone() -> None:
    """Only who has a claim on a GPU that moves is in the way."""
    claims = (claim(G[0], "p"), claim(G[5], "q"))
    state = cluster(node(claims=claims), pod("q"))
    state.pods.changed(pod("p"))
    state.pods.changed(running("p", "n1", G[0], version=2))
    state.nodes.changed(node(claims=claims, held={G[2]: "p"}, version=2))
    assert corrected(state) == ({"p": [G[2]]}, frozenset())


def test_nothing_moves_to_a_gpu_that_the_node_does_not_have() -> None:
    """A report may be of before the node lost one."""
    state = cluster(node(claims=(claim(G[0], "p"),)))
    state.pods.changed(pod("p"))
    state.pods.changed(running("p", "n1", G[0], version=2))
    state.nodes.changed(node(claims=(claim(G[0], "p"),), held={"GPU-of-before": "p"}, version=2))
    assert corrected(state) == ({}, frozenset())


def test_nothing_moves_to_a_gpu_that_two_live_pods_have() -> None:
    """That is a conflict, which only the end of one of them solves."""
    state = cluster(node(), running("p", "n1", G[1]), running("q", "n1", G[1]), running("r", "n1", G[3]))
    assert corrected(state) == ({"r": [G[3]]}, frozenset())


def test_what_is_settled_needs_no_correction() -> None:
    """The ledger says what is known."""
    state = cluster(node(claims=(claim(G[0], "p"),)), running("p", "n1", G[0]))
    assert correct(state.views["n1"]) == Correction(())
