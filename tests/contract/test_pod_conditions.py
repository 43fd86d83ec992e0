"""Contract with the API: how the queue says on a pod why it waits."""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.processes.client import ApiClient, ClientResponse
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.features.queue.conditions import PlanCondition, to_request
from extender.kit.clock import Instant
from extender.kubernetes.rest import QUEUE
from tests.contract.requests import create, merge, refusal
from topology.annotations import keys

THEIRS = {"type": "example.com/Checked", "status": "True", "reason": "Theirs", "message": ""}


async def say(api: ApiClient, pod: dict[str, Any], condition: PlanCondition) -> ClientResponse:
    metadata = pod["metadata"]
    meta = ObjectMeta(metadata["name"], metadata["namespace"], metadata["uid"], metadata["resourceVersion"])
    request = to_request(GpuPod(Pod(meta), 1, None), condition, Instant(0.0, 1_800_000_000.0))
    path, body = request.path.partition("?")[0], msgspec.json.decode(request.body or b"")
    return await api.call(request.method, path, body, content_type=request.content_type, fieldManager=QUEUE)


async def test_a_condition_is_written_next_to_those_of_others(api: ApiClient, pods: str) -> None:
    """The next one replaces ours alone."""
    made = await create(api, pods, schedulingGates=[{"name": keys.PLAN_GATE}])
    theirs = (await merge(api, f"{pods}/p/status", {"status": {"conditions": [THEIRS]}})).ok()
    first = (await say(api, theirs, PlanCondition(is_planned=False, reason="NoRoom", message="place 1"))).ok()
    second = (await say(api, first, PlanCondition(is_planned=True, reason="Planned", message="bound to n1"))).ok()
    conditions = {item["type"]: (item["status"], item["reason"]) for item in second["status"]["conditions"]}
    assert conditions.pop(keys.PLANNED_CONDITION) == ("True", "Planned")
    assert conditions[THEIRS["type"]] == ("True", "Theirs")
    assert second["spec"] == made["spec"]


async def test_a_pod_that_has_changed_is_left_alone(api: ApiClient, pods: str) -> None:
    """Its claims may name that version."""
    made = await create(api, pods, schedulingGates=[{"name": keys.PLAN_GATE}])
    (await merge(api, f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})).ok()
    condition = PlanCondition(is_planned=False, reason="NoRoom", message="place 1")
    assert refusal(await say(api, made, condition)) == (409, "Conflict")
