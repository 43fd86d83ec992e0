"""What an extender with a queue may write on pods, as a real API server sees it: its own gate, and where the pod goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.binding.intents import Nominate, OpenGate, Single
from extender.kubernetes.events import PodName
from extender.kubernetes.eviction import to_request as eviction
from extender.kubernetes.rest import to_request
from tests.cluster.admission import ACCEPTED, BINDINGS, Request, Row, annotate_pod, outcome, put_in_force
from tests.cluster.api import Api, PatchKind
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import ACCOUNT as EXTENDER
from tests.cluster.installation import install_chart
from tests.cluster.objects import PODS, Json, container, pod
from tests.cluster.polling import eventually
from tests.cluster.test_policies import USER, let_all_write
from topology.annotations import keys

QUEUE_POLICY = "extender-pods"
OTHER_GATE = "kueue.x-k8s.io/admission"
USERS: dict[str, list[str]] = {EXTENDER: [], USER: []}


def change(name: str, body: Mapping[str, Any], subresource: str = "") -> Request:
    """Change anything of a pod, where lists are merged by name."""
    return lambda api: api.patch(f"{PODS}/{name}{subresource}", dict(body), "strategic", dryRun="All")


def remove_gates(name: str, *gates: str, **spec: object) -> Request:
    """Remove scheduling gates, and change more of the spec in the same write."""
    return change(name, {"spec": {"schedulingGates": [{"$patch": "delete", "name": gate} for gate in gates], **spec}})


def evict(name: str) -> Request:
    """Ask for an eviction, as the queue does."""

    def send(api: Api) -> Any:
        metadata = api.get(f"{PODS}/{name}")["metadata"]
        request = eviction(PodName("default", name, metadata["uid"]), metadata["resourceVersion"])
        assert request.body is not None
        return api.post(request.path, msgspec.json.decode(request.body), dryRun="All")

    return send


def label(subresource: str = "") -> Request:
    """Set a label of a pod."""
    return change("queued", {"metadata": {"labels": {"a": "b"}}}, subresource)


def intended(name: str, intent: type[OpenGate] | type[Nominate], *more: object) -> Request:
    """Send what the queue sends."""

    def send(api: Api) -> Any:
        metadata = api.get(f"{PODS}/{name}")["metadata"]
        single: Single = intent("default", name, metadata["uid"], metadata["resourceVersion"], "node-a", *more)  # type: ignore[arg-type]
        request = to_request(single)
        kind: PatchKind = "strategic" if "strategic" in request.content_type else "merge"
        assert request.body is not None
        return api.patch(request.path.partition("?")[0], msgspec.json.decode(request.body), kind, dryRun="All")

    return send


IMAGE = {"containers": [{"name": "main", "image": "example.test/other"}]}
AFFINITY: Json = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}
SCHEDULED = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}
WAITS = {"status": {"conditions": [{"type": keys.PLANNED_CONDITION, "status": "False", "reason": "NoRoom"}]}}
STARTED = {
    "status": {"containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0}]}
}
TOLERATION = {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]}
TABLE = [
    Row(EXTENDER, "opens its gate and pins the pod", intended("queued", OpenGate, True)),
    Row(EXTENDER, "opens its gate and prefers a node", intended("queued", OpenGate, False)),
    Row(EXTENDER, "opens its gate with a record", intended("queued", OpenGate, True, True, '{"v":1}')),
    Row(EXTENDER, "nominates the pod", intended("queued", Nominate)),
    Row(EXTENDER, "evicts the pod", evict("queued")),
    Row(EXTENDER, "opens its gate before others", remove_gates("held", keys.PLAN_GATE)),
    Row(EXTENDER, "fences the pod", annotate_pod("queued", {keys.FENCE: "7"}, "/status")),
    Row(EXTENDER, "says that the pod is unschedulable", change("queued", SCHEDULED, "/status")),
    Row(EXTENDER, "says why the pod waits", change("queued", WAITS, "/status")),
    Row(EXTENDER, "opens the gate of somebody else", remove_gates("held", OTHER_GATE), QUEUE_POLICY),
    Row(EXTENDER, "opens all gates", remove_gates("held", OTHER_GATE, keys.PLAN_GATE), QUEUE_POLICY),
    Row(EXTENDER, "labels the pod", label(), QUEUE_POLICY),
    Row(EXTENDER, "labels the pod through status", label("/status"), QUEUE_POLICY),
    Row(EXTENDER, "annotates the pod otherwise", annotate_pod("queued", {"example.com/note": "x"}), QUEUE_POLICY),
    Row(EXTENDER, "changes the image", change("queued", {"spec": IMAGE}), QUEUE_POLICY),
    Row(EXTENDER, "changes the image with the gate", remove_gates("queued", keys.PLAN_GATE, **IMAGE), QUEUE_POLICY),
    Row(EXTENDER, "adds a toleration", change("queued", {"spec": TOLERATION}), QUEUE_POLICY),
    Row(EXTENDER, "adds a node selector", change("queued", {"spec": {"nodeSelector": {"a": "b"}}}), QUEUE_POLICY),
    Row(EXTENDER, "sets a deadline", change("queued", {"spec": {"activeDeadlineSeconds": 1}}), QUEUE_POLICY),
    Row(EXTENDER, "changes the affinity and keeps the gate", change("queued", {"spec": AFFINITY}), QUEUE_POLICY),
    Row(EXTENDER, "ends the pod", change("queued", {"status": {"phase": "Failed"}}, "/status"), QUEUE_POLICY),
    Row(EXTENDER, "reports a container", change("queued", STARTED, "/status"), QUEUE_POLICY),
    Row(USER, "opens all gates", remove_gates("held", OTHER_GATE, keys.PLAN_GATE)),
    Row(USER, "labels the pod", label()),
]  # fmt: skip


@pytest.fixture(scope="module")
def guarded(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with gputopo and its queue, where RBAC lets the extender write anything of pods."""
    with ControlPlane(binaries, USERS) as own:
        install_chart(own, "extender.config.queue.enabled=true")
        let_all_write(own.admin)
        gates = [{"name": OTHER_GATE}, {"name": keys.PLAN_GATE}]
        own.admin.post(PODS, pod("held", 1, schedulingGates=gates))
        own.admin.post(PODS, pod("queued", 1, schedulingGates=gates[1:], containers=[container(gpus=1)]))
        eventually(lambda: outcome(own.api(EXTENDER), label()) == QUEUE_POLICY)
        yield own


@pytest.mark.parametrize("row", [row.parameter() for row in TABLE])
def test_the_queue_writes_its_own_gate_and_no_more(guarded: ControlPlane, row: Row) -> None:
    """The planner, and kube-scheduler with the same account, write what they have to; everything else is refused."""
    assert outcome(guarded.api(row.who), row.request) == row.refused_by


def test_the_policy_is_needed(guarded: ControlPlane) -> None:
    """Without its binding all of its rows are accepted."""
    rows = [row for row in TABLE if row.refused_by == QUEUE_POLICY]
    guarded.admin.delete(f"{BINDINGS}/gputopo-{QUEUE_POLICY}")
    try:
        eventually(lambda: all(outcome(guarded.api(row.who), row.request) == ACCEPTED for row in rows))
    finally:
        put_in_force(guarded)
        eventually(lambda: outcome(guarded.api(EXTENDER), label()) == QUEUE_POLICY)
