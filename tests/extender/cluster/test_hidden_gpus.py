"""Pods that bypassed us hold GPUs that nobody can name: whoever plans on the node has to leave place for them."""

from __future__ import annotations

from collections import Counter

import pytest

from extender.cluster.candidates.holds import Held
from extender.cluster.node_view import NodeView
from extender.inspect import inspection
from extender.inspect.status import status
from extender.telemetry.gauges import gauges_of
from extender.verbs.victims import Candidate
from tests.extender.builders import at, claim, cluster, free, gpus, node, pod, running
from topology.effort import finish
from topology.node.links import Affinity
from topology.placement.verdict import ASK_WHO, UNKNOWN_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest

G = gpus("n1", *range(8))
TOO_FEW = Rejection(
    Reason.TOO_FEW_FREE,
    f"too few GPUs are free: {UNKNOWN_GPUS}",
    "3 of 6 that seem free",
    remedy=ASK_WHO,
    resolvable=True,
)


def view(hidden: int) -> NodeView:
    """Return a node of eight GPUs on which a pod runs on the first two, and another one holds some that nobody can name."""
    stray = [pod("stray", hidden, on="n1", phase="Running")] if hidden else []
    return cluster(node(), running("known", "n1", G[0], G[1]), *stray).views["n1"]


def test_no_particular_gpus_are_promised_while_some_are_hidden() -> None:
    """Those that are held for a pod may be the very ones."""
    assert view(1).decide_on(Held(0b11100), GpuRequest(2)) == Rejection(Reason.CLOSED, UNKNOWN_GPUS, remedy=ASK_WHO)
    for request in GpuRequest(2), GpuRequest(2, required=Affinity.NVLINK):
        found = view(0).decide_on(Held(0b11100), request)
        assert isinstance(found, Placement)
        assert set(found.gpus) < {2, 3, 4}


def test_gpus_that_are_not_free_are_not_promised_for_being_held() -> None:
    """A hold is advice, and may be out of date."""
    assert isinstance(view(0).decide_on(Held(0b111), GpuRequest(2)), Rejection)


def victims(seen: NodeView, count: int, *offered: str) -> list[str]:
    """Return who has to go for a pod of so many GPUs."""
    vip = pod("vip", count, priority=1000)
    return finish(Candidate(seen, vip, GpuRequest(count), Counter(), offered).search())


@pytest.mark.parametrize(("hidden", "most"), [(1, 7), (3, 5)])
def test_hidden_gpus_stay_hidden_when_others_leave(hidden: int, most: int) -> None:
    """Evicting the pod that is known gives its two GPUs, and tells nothing of the others."""
    assert victims(view(hidden), most) == ["known"]
    assert victims(view(hidden), most + 1) == []


def test_gpus_of_the_pod_that_leaves_are_hidden_no_longer() -> None:
    """Whichever they were."""
    assert victims(view(3), 6, "stray") == ["stray"]


def test_room_counts_only_the_pods_that_fit_beside_hidden_gpus() -> None:
    """Six are free and three of them are not."""
    assert (view(0).how_many_fit("new", GpuRequest(2)), view(3).how_many_fit("new", GpuRequest(2))) == (3, 1)


def test_a_pod_with_place_for_it_is_planned_on_all_free_gpus() -> None:
    """Enough are left whichever the hidden ones are; what they are worth together nobody can say."""
    found = view(3).decide_for("new", GpuRequest(3))
    assert isinstance(found, Placement)
    assert set(found.gpus) < set(range(2, 8))
    assert view(3).decide_for("new", GpuRequest(4)) == TOO_FEW
    closed = Rejection(Reason.CLOSED, UNKNOWN_GPUS, remedy=ASK_WHO)
    assert view(3).decide_for("new", GpuRequest(2, required=Affinity.NVLINK)) == closed


ELSEWHERE = gpus("n2", 0, 1)
"""Of another node, as a copied record names them, or as they were before the machine was replaced."""


@pytest.mark.parametrize("claimed", [(), ELSEWHERE])
def test_gpus_of_a_pod_are_hidden_whose_record_and_claims_name_none_of_the_nodes(claimed: tuple[str, ...]) -> None:
    """A copy with the record of another pod, or one that stayed when the machine got other GPUs: no GPU is given twice."""
    built = node(claims=tuple(claim(gpu, "copy") for gpu in claimed))
    state = cluster(built, running("copy", "n1", *ELSEWHERE))
    assert state.views["n1"].shape.hidden == 2
    assert isinstance(state.views["n1"].decide_for("new", GpuRequest(6)), Placement)
    assert isinstance(state.views["n1"].decide_for("new", GpuRequest(7)), Rejection)
    assert gauges_of(state)["pods_unledgered"] == 1


def test_such_a_pod_is_shown() -> None:
    """On its node, and in the status."""
    state = cluster(node(), running("copy", "n1", *ELSEWHERE))
    detail = inspection.node(state, "n1", at())
    assert detail is not None
    assert [holder.line for holder in detail.unknown_holders] == [
        "ml/copy holds 2 GPUs that nobody can name; its placement record names no GPU of the node"
    ]
    assert [finding.nodes for finding in status(state).findings] == [("n1",)]


def test_a_report_tells_which_gpus_such_a_pod_holds() -> None:
    """Then they are its own, and the rest is free."""
    state = cluster(node(), running("copy", "n1", *ELSEWHERE))
    state.nodes.changed(node(held={G[6]: "copy", G[7]: "copy"}, version=2, reports=2))
    assert state.views["n1"].shape.hidden == 0
    assert free(state) == (0, 1, 2, 3, 4, 5)
