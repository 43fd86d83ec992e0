"""Nodes whose GPUs are DRA devices that a feature allocates: open for pods that request them by claims, and for no others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.openness import BY_DRA, FOR_CLAIMS_ALONE, NOT_BY_CLAIM
from extender.cluster.node_view import NodeView
from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from extender.inspect.faults import FOREIGN, Faults
from extender.inspect.occupation import occupations
from tests.dra import allocated, gpu, read_claim, read_slice, resource_slice, waiting
from tests.extender.builders import claim, cluster, free, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import ClaimUser, Observed, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest

PLUGIN = DevicePluginStatus(Mode.OBSERVE, ready=False, reasons=("no device plugin serves nvidia.com/gpu",))
OBSERVED = encode_status(
    NodeGpuStatus(1, tuple(GpuStatus(uuid, offers=()) for uuid in gpus("n1", *range(8))), device_plugin=PLUGIN)
)
"""What an agent says where no device plugin offers GPUs."""
OURS = "ours"


def made_for(pod: str, text: dict[str, object]) -> ResourceClaim:
    """Return the claim as one that was made for a pod."""
    text["metadata"] |= {"ownerReferences": [{"kind": "Pod", "uid": pod, "controller": True}]}  # type: ignore[operator]
    return read_claim(text)


def marked_for(pod: str, text: dict[str, Any], namespace: str = "ml") -> ResourceClaim:
    """Return the claim as one without a template that is marked for a pod, perhaps by a user of another namespace."""
    text["metadata"] |= {"annotations": {keys.CLAIM_POD: pod}, "namespace": namespace}
    return read_claim(text)


def deleted(item: ResourceClaim) -> ResourceClaim:
    """Return the claim as one that is being deleted, which a finalizer of anybody may keep for ever."""
    return replace(item, metadata=replace(item.metadata, deletion_timestamp="2026-11-29T12:00:00Z"))


def published(*claims: ResourceClaim, ledger: tuple[str, ...] = ()) -> ClusterState:
    """Return a node whose driver publishes its GPUs; the ledger names pods for the first ones."""
    state = ClusterState()
    state.claims.allocated_here = lambda item: item.metadata.name.startswith(OURS)
    devices = [gpu(position, uuid) for position, uuid in enumerate(gpus("n1", *range(8)))]
    state.claims.slices.replaced([read_slice(resource_slice("n1", devices))])
    state.claims.replaced(claims)
    state.claims.hear(True)
    named = tuple(claim(uuid, pod) for uuid, pod in zip(gpus("n1", *range(8)), ledger, strict=False))
    return cluster(node(claims=named, status=OBSERVED), into=state)


@pytest.mark.parametrize("by_claim", [False, True])
def test_the_node_is_open_for_one_kind_of_pods(by_claim: bool) -> None:
    """Also in mode `observe`, where NVIDIA's plugin would choose: there is none."""
    by_plugin, by_dra = cluster(node()).views["n1"], published().views["n1"]
    request = GpuRequest(2, by_claim=by_claim)
    good, bad = (by_dra, by_plugin) if by_claim else (by_plugin, by_dra)
    assert isinstance(good.decide_for("p", request), Placement)
    refused = bad.decide_for("p", request)
    assert isinstance(refused, Rejection) and (NOT_BY_CLAIM if by_claim else BY_DRA) in refused.message
    assert by_dra.by_claim and not by_dra.plugin_chooses


@pytest.mark.parametrize(("offered", "by_claim"), [("7", False), ("0", True)])
def test_where_a_device_plugin_offers_mig_devices_none_is_given_by_claims(offered: str, by_claim: bool) -> None:
    """They may be the same; a kubelet goes on to name what a plugin has offered, with none of it."""
    state = published()
    before = node(status=OBSERVED, version=2)
    allocatable = {keys.GPU_RESOURCE: "0", keys.MIG_PREFIX + "1g.5gb": offered}
    state.nodes.changed(replace(before, status=replace(before.status, allocatable=allocatable)))
    view = state.views["n1"]
    assert view.by_claim == by_claim
    assert isinstance(view.decide_for("p", GpuRequest(1, by_claim=True)), Placement if by_claim else Rejection)


def test_free_is_what_no_claim_of_any_class_holds() -> None:
    state = published(read_claim(allocated("theirs", "n1", "gpu-1")), made_for("p", allocated(OURS, "n1", "gpu-2")))
    assert free(state) == (0, 3, 4, 5, 6, 7)


def test_what_the_ledger_and_a_claim_name_for_one_pod_is_its_own() -> None:
    """It would be taken for somebody else's otherwise, and the plan given up."""
    state = published(made_for("p", allocated(OURS, "n1", "gpu-0")), ledger=("p",))
    view = state.views["n1"]
    decision = view.decide_for("p", GpuRequest(1, by_claim=True))
    assert isinstance(decision, Placement) and decision.gpus == (0,)
    assert (view.left_to_dra, view.disputed, free(state)) == (frozenset(), frozenset(), tuple(range(1, 8)))


@pytest.mark.parametrize(
    ("resource_claim", "standing"),
    [
        (None, Standing.FREE),
        (made_for("p", waiting(OURS)), Standing.CLAIMED),
        (made_for("p", allocated(OURS, "n1", "gpu-0")), Standing.CLAIMED),
        (made_for("p", allocated(OURS, "n1", "gpu-5")), Standing.FREE),
        (made_for("other", allocated(OURS, "n1", "gpu-0")), Standing.FREE),
        (made_for("p", allocated("theirs", "n1", "gpu-0")), Standing.FREE),
        (marked_for("p", waiting(OURS)), Standing.CLAIMED),
        (marked_for("p", waiting(OURS), namespace="theirs"), Standing.FREE),
        (deleted(made_for("p", waiting(OURS))), Standing.FREE),
        (deleted(made_for("p", allocated(OURS, "n1", "gpu-0"))), Standing.CLAIMED),
    ],
)
def test_a_ledger_keeps_what_a_claim_of_a_dead_pod_holds_or_may_still_get(
    resource_claim: ResourceClaim | None, standing: Standing
) -> None:
    """An allocation may be under way until the claim is gone, or is being deleted."""
    state = published(*filter(None, [resource_claim]), ledger=("p",))
    state.pods.changed(pod("p", phase="Failed"))
    assert [each for _, each in state.views["n1"].claims] == [standing]


def test_the_standing_changes_with_the_claim() -> None:
    """The node's view is derived again, though nothing of the node has changed."""
    ours = made_for("p", waiting(OURS))
    state = published(ours, ledger=("p",))
    state.pods.changed(pod("p", phase="Failed"))
    assert [each for _, each in state.views["n1"].claims] == [Standing.CLAIMED]
    state.claims.deleted(ours)
    assert [each for _, each in state.views["n1"].claims] == [Standing.FREE]


def test_a_claim_that_is_allocated_no_more_keeps_only_what_it_holds() -> None:
    """Also in later versions, until it is gone."""
    ours = made_for("p", waiting(OURS))
    state = published(ours, ledger=("p",))
    state.pods.changed(pod("p", phase="Failed"))
    standings = []
    for item in (ours, ours, made_for("p", allocated(OURS, "n1", "gpu-0"))):
        state.claims.settle(item.metadata.uid)
        state.claims.changed(item)
        standings += [standing for _, standing in state.views["n1"].claims]
    assert standings == [Standing.FREE, Standing.FREE, Standing.CLAIMED]
    state.claims.deleted(ours)
    assert not state.claims.is_settled(ours.metadata.uid)


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        ({"cpu": "8"}, FOR_CLAIMS_ALONE),
        ({keys.GPU_RESOURCE: "0"}, FOR_CLAIMS_ALONE),
        ({keys.GPU_RESOURCE: "8"}, None),
        ({keys.GPU_RESOURCE: "0", keys.SHARE_RESOURCE: "40"}, None),
        ({keys.GPU_RESOURCE: "0", keys.MIG_PREFIX + "1g.5gb": "7"}, None),
        (None, None),
    ],
)
def test_without_a_feature_a_node_is_closed_that_offers_gpus_by_its_driver_alone(
    offered: dict[str, str] | None, why: str | None
) -> None:
    """No pod of ours can run there; a node that says nothing of what it offers stays open."""
    state = published()
    state.claims.allocated_here = None
    before = node(status=OBSERVED, version=2)
    whole = [GpuStatus(uuid) for uuid in gpus("n1", *range(8))]
    before.metadata.annotations[keys.STATUS] = encode_status(NodeGpuStatus(1, tuple(whole)))  # type: ignore[index]
    state.nodes.changed(replace(before, status=replace(before.status, allocatable=offered)))
    assert state.views["n1"].shape.closed == why


@pytest.mark.parametrize(("users", "has_two_owners"), [(["p"], False), (["q"], True), (["p", "q"], True), ([], True)])
def test_without_a_feature_a_gpu_whose_claim_is_reserved_for_its_pod_has_one_owner(
    users: list[str], has_two_owners: bool
) -> None:
    """The feature had allocated the claim; the ledger names the pod."""
    state = published(ledger=("p",))
    state.claims.allocated_here = None
    item = allocated(OURS, "n1", "gpu-0")
    item["status"]["reservedFor"] = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    state.claims.changed(state.claims.keep(read_claim(item)))
    state.pods.changed(pod("p", on="n1"))
    view = state.views["n1"]
    assert (view.disputed == {gpus("n1", 0)[0]}) == has_two_owners
    assert bool(view.disputed) == has_two_owners


def reported(state: ClusterState, *users: ClaimUser, foreign: tuple[int, ...] = ()) -> NodeView:
    """Let the node's agent tell whom it saw with devices, and on which GPUs processes compute; returns the node's view."""
    known = state.views["n1"].node
    computing = dict.fromkeys(gpus("n1", *foreign), 1)
    text = encode_observed(Observed({}, 2, foreign_processes=computing, claimed=users))
    annotations = {**(known.metadata.annotations or {}), keys.OBSERVED: text}
    version = str(int(known.metadata.resource_version) + 1)
    metadata = replace(known.metadata, annotations=annotations, resource_version=version)
    state.nodes.changed(replace(known, metadata=metadata))
    return state.views["n1"]


def user(pod: str, claim: str, *devices: str) -> ClaimUser:
    return ClaimUser("ml", pod, "main", claim, "n1", devices)


def test_a_gpu_that_a_container_uses_and_no_claim_holds_is_not_free() -> None:
    """Its claim was removed by force, and the container runs on. It is free when the agent does not see it any more."""
    state = published()
    view = reported(state, user("stray", "gone", "gpu-1", "gpu-4"))
    assert (free(state), view.disputed) == ((0, 2, 3, 5, 6, 7), frozenset())
    assert "used as a DRA device that no ResourceClaim holds, by ml/stray" in Faults(view).of(1)
    assert state.sums.figures["gpus_used_without_claim"] == 2
    reported(state)
    assert free(state) == tuple(range(8))


def test_a_container_of_a_pod_that_has_stopped_uses_nothing() -> None:
    """The agent's report is older: claims are often gone before the next one."""
    state = published()
    state.pods.changed(pod("ended", on="n1", phase="Succeeded", terminated=True))
    assert reported(state, user("ended", "gone", "gpu-1")).dra.unexplained == {}
    assert free(state) == tuple(range(8))


@pytest.mark.parametrize(("name", "is_disputed"), [("p", False), ("q", True)])
def test_a_gpu_that_is_promised_to_a_pod_and_used_by_another_one_is_disputed(name: str, is_disputed: bool) -> None:
    """A pod whose own claim was removed by force has one owner still."""
    state = published(ledger=("p",))
    state.pods.changed(pod("p", on="n1"))
    view = reported(state, user(name, "gone", "gpu-0"))
    assert (view.disputed == {gpus("n1", 0)[0]}) == is_disputed
    assert view.owners_of(gpus("n1", 0)[0]) == tuple(dict.fromkeys(("ml/p", f"ml/{name}")))
    assert (state.sums.figures["gpus_in_conflict"] == 1) == is_disputed


def test_a_pod_is_shown_with_the_gpus_that_it_uses() -> None:
    """Of a claim of another class nobody but the agent tells the pod."""
    ours, theirs = made_for("p", allocated(OURS, "n1", "gpu-0")), read_claim(allocated("theirs", "n1", "gpu-2"))
    state = published(ours, theirs, ledger=("p",))
    view = reported(state, user("p", OURS, "gpu-0"), user("q", "theirs", "gpu-2"))
    shown = [(gpu.state, gpu.pod, gpu.container) for gpu in occupations(view, 0)[:3]]
    assert shown == [("claimed", "ml/p", "main"), ("free", None, None), ("unplanned", "ml/q", "main")]
    assert view.disputed == frozenset()


def test_processes_of_containers_with_devices_are_not_foreign() -> None:
    """The agent cannot tell which GPU a device is, and counts them. Those on other GPUs are foreign."""
    state = published(made_for("p", allocated(OURS, "n1", "gpu-0")), ledger=("p",))
    view = reported(state, user("p", OURS, "gpu-0"), foreign=(0, 3))
    assert view.foreign == {gpus("n1", 3)[0]}
    assert (FOREIGN in Faults(view).of(0), FOREIGN in Faults(view).of(3)) == (False, True)
    assert not view.fit >> 3 & 1 and view.fit & 1


def test_processes_of_a_pod_that_has_stopped_since_the_report_are_not_foreign() -> None:
    """The report is older than its end. A GPU would be closed after the end of each such pod."""
    state = published(made_for("p", allocated(OURS, "n1", "gpu-0")), ledger=("p",))
    state.pods.changed(pod("p", on="n1", phase="Succeeded", terminated=True))
    assert reported(state, user("p", OURS, "gpu-0"), foreign=(0, 3)).foreign == {gpus("n1", 3)[0]}
    state.claims.changed(made_for("p", waiting(OURS)))
    assert state.views["n1"].foreign == {gpus("n1", 3)[0]}


def test_a_monitor_that_ends_disputes_no_gpu() -> None:
    """Its claim, which had admin access, is often gone before the agent's next report; the pods that have the GPUs go on."""
    monitor = read_claim(allocated("monitor", "n1", *(f"gpu-{minor}" for minor in range(8)), admin=True))
    state = published(monitor, made_for("p", allocated(OURS, "n1", "gpu-0")), ledger=("p",))
    state.pods.changed(pod("p", on="n1"))
    reported(state, user("p", OURS, "gpu-0"), user("dcgm", "monitor", *(f"gpu-{minor}" for minor in range(8))))
    state.claims.deleted(monitor)
    assert (state.views["n1"].disputed, free(state)) == (frozenset(), (1, 2, 3, 4, 5, 6, 7))
    assert not state.conditions.in_conflict and state.sums.figures["gpus_used_without_claim"] == 0


def test_without_a_feature_there_are_no_such_nodes() -> None:
    state = published()
    state.claims.allocated_here = None
    state.claims.hear(False)
    assert not state.views["n1"].by_claim
