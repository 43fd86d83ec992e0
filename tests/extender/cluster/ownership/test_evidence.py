"""What is known beyond a node's annotations: whose node a ledger is about, and whether a namesake has replaced a pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.cluster.objects.kinds import Pod
from extender.cluster.ownership.standing import Standing
from tests.extender.builders import claim, cluster, gpus, node, running
from tests.extender.shares import Seen, share, sharer, sharing, sharing_node
from topology.annotations.records import Claim, Ledger, encode_ledger

A, B, *_ = gpus("n1", *range(8))
OLD = replace(share(A, "old", 10), name="p")
"""The claim of a pod that was deleted by force."""


@pytest.mark.parametrize(
    ("node_uid", "standing"),
    [("uid-n1", Standing.GONE), ("uid-of-the-former-node", Standing.FREE), ("", Standing.GONE)],
    ids=["this node", "a former node of that name", "nobody knows"],
)
def test_claims_on_a_former_node_of_that_name_end_with_their_pods(node_uid: str, standing: Standing) -> None:
    """No container outlives the machine's return as another node."""
    ours = claim(A, "p")
    state = cluster(node(ledger=encode_ledger(Ledger(1, (ours,), node_uid))), running("p", "n1", A))
    assert dict(state.views["n1"].claims)[ours] is Standing.HELD
    state.pods.deleted(running("p", "n1", A, version=2))
    assert dict(state.views["n1"].claims)[ours] is standing


def after_two_reports(old: Claim, namesake: Pod, *, seen: Seen, before: Pod) -> Standing:
    """Return the standing of a claim, when its pod is gone, a namesake is there, and the agent has reported twice since."""
    claims = (old, replace(share(B, "new", 10), name="p"))
    state = cluster(sharing_node(*claims, seen=seen), before)
    state.pods.deleted(before)
    state.pods.changed(namesake)
    state.set_baseline("n1", old)
    state.nodes.changed(sharing_node(*claims, seen=seen, reports=3, version=2))
    return dict(state.views["n1"].claims)[old]


NEW = sharing("p", A, uid="new")


@pytest.mark.parametrize(
    ("old", "namesake", "seen", "standing"),
    [
        (OLD, NEW, {A: {"p": 10}}, Standing.FREE),
        (OLD, NEW, {A: {"p": 10}, B: {"q": 5}}, Standing.FREE),
        (OLD, NEW, {A: {"p": 11}}, Standing.GONE),
        (OLD, NEW, {A: {"p": 5}, B: {"p": 5}}, Standing.FREE),
        (OLD, sharer("p", 10, on="n1", gpu=A, uid="new"), {A: {"p": 10}}, Standing.GONE),
        (OLD, running("p", "n1", B), {A: {"p": 10}}, Standing.GONE),
        (replace(claim(A, "old"), name="p"), NEW, {A: {"p": 10}}, Standing.GONE),
    ],
    ids=[
        "all that is seen is the namesake's",
        "others have shares, too",
        "more is seen than the namesake has",
        "the namesake has two parts",
        "the namesake has not started",
        "the namesake has a whole GPU",
        "the claim is on a whole GPU",
    ],
)
def test_a_share_of_a_pod_that_is_gone_ends_when_a_namesake_has_all_that_is_seen(
    old: Claim, namesake: Pod, seen: Seen, standing: Standing
) -> None:
    """A report knows names only, and would never show the end of the first pod."""
    assert after_two_reports(old, namesake, seen=seen, before=sharing("p", A, uid="old")) is standing


def test_a_pod_that_was_called_ended_has_not_replaced_itself() -> None:
    """Its containers are still seen, under its own name."""
    ours, ended = share(A, "p", 10), sharer("p", 10, on="n1", gpu=A, phase="Failed", terminated=False, version=2)
    state = cluster(sharing_node(ours, seen={A: {"p": 10}}), sharing("p", A))
    state.pods.changed(ended)
    state.set_baseline("n1", ours)
    state.nodes.changed(sharing_node(ours, seen={A: {"p": 10}}, reports=3, version=2))
    assert dict(state.views["n1"].claims)[ours] is Standing.GONE
