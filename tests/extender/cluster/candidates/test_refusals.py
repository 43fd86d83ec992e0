"""Why pods wait, and since when, is known of each pod that no node would do for."""

from __future__ import annotations

from extender.cluster.candidates.refusals import Refusals
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import PAIRS, args, at, claim, cluster, gpus, node, pod, running
from topology.annotations import keys
from topology.placement.verdict import Reason

WAITING = pod("p", 2, wants={keys.REQUIRED_AFFINITY: "nvlink"})
OTHER = pod("q", 2, wants={keys.REQUIRED_AFFINITY: "nvlink"})
UID = WAITING.metadata.uid


def scattered() -> ClusterState:
    """Return a node with a free GPU of each pair, and one without a topology."""
    taken = gpus("n1", 0, 2, 4, 6, machine_name=PAIRS)
    claims = tuple(claim(gpu, "on-n1") for gpu in taken)
    return cluster(node("n1", PAIRS, claims=claims), running("on-n1", "n1", *taken), node("n2", topology=None))


def refuse(state: ClusterState, asked: Pod, now: float) -> None:
    filter_nodes(state, args(asked, "n1", "n2"), at(now))


def test_a_refused_pod_waits_for_the_reasons_of_its_last_refusal_and_since_its_first() -> None:
    """Every reason that some node gave."""
    state = scattered()
    refuse(state, WAITING, 5.0)
    refuse(state, WAITING, 90.0)
    refusal = state.memory.refusals.of(UID)
    assert refusal
    assert refusal.since == 5.0
    assert refusal.reasons == {Reason.AFFINITY, Reason.CLOSED}
    assert state.memory.refusals.waiting() == {Reason.AFFINITY: 1, Reason.CLOSED: 1}


def test_a_pod_that_is_bound_or_gone_waits_no_more() -> None:
    """By whomever it was bound."""
    state = scattered()
    refuse(state, WAITING, 5.0)
    state.pods.changed(running("p", "n1", *gpus("n1", 1, 3, machine_name=PAIRS), version=2))
    state.refresh()
    assert state.memory.refusals.of(UID) is None
    refuse(state, OTHER, 6.0)
    state.pods.changed(OTHER)
    state.pods.deleted(OTHER)
    state.refresh()
    assert state.memory.refusals.of(OTHER.metadata.uid) is None


def test_so_many_are_remembered_and_no_more() -> None:
    """The oldest goes first."""
    refusals = Refusals(limit=2)
    for uid in ("a", "b", "c"):
        refusals.add(uid, frozenset({Reason.NIC}), 0.0)
    assert [refusals.of(uid) is not None for uid in ("a", "b", "c")] == [False, True, True]
