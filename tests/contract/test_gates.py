"""Contract with the API: how the queue removes its scheduling gate from a pod, and what of a gated pod may change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from benchmarks.processes.client import ApiClient, ClientResponse
from extender.binding.intents import OpenGate
from extender.kubernetes.rest import QUEUE, to_request
from tests.contract.requests import create, merge, refusal
from topology.annotations import keys

OURS = {"name": keys.PLAN_GATE}
RECORD = '{"v":1,"containers":{}}'
THEIRS = {"name": "kueue.x-k8s.io/admission"}
TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


async def open_gate(api: ApiClient, pod: dict[str, Any], *, is_pinned: bool = True) -> ClientResponse:
    metadata = pod["metadata"]
    version = metadata["resourceVersion"]
    intent = OpenGate(metadata["namespace"], "p", metadata["uid"], version, "n1", is_pinned, placement=RECORD)
    request = to_request(intent)
    path = request.path.partition("?")[0]
    body = msgspec.json.decode(request.body or b"")
    return await api.call(request.method, path, body, content_type=request.content_type, fieldManager=QUEUE)


@pytest.mark.parametrize("is_pinned", [True, False], ids=["pinned", "preferred"])
async def test_gate_node_mark_and_record_change_in_one_write(api: ApiClient, pods: str, is_pinned: bool) -> None:
    """The pod goes to that node alone, or prefers it."""
    now = (await open_gate(api, await create(api, pods, schedulingGates=[OURS]), is_pinned=is_pinned)).ok()
    assert not now["spec"].get("schedulingGates")
    assert now["metadata"]["annotations"] == {keys.PLANNED: "n1", keys.PLACEMENT: RECORD}
    affinity = now["spec"]["affinity"]["nodeAffinity"]
    if is_pinned:
        assert affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [TERM]
    else:
        assert affinity["preferredDuringSchedulingIgnoredDuringExecution"] == [{"weight": 100, "preference": TERM}]


async def test_gates_of_others_stay(api: ApiClient, pods: str) -> None:
    """Only ours goes, wherever it stands."""
    now = (await open_gate(api, await create(api, pods, schedulingGates=[THEIRS, OURS]))).ok()
    assert now["spec"]["schedulingGates"] == [THEIRS]


async def test_a_gate_is_opened_for_one_version_of_a_pod(api: ApiClient, pods: str) -> None:
    """What has changed meanwhile may be what the plan rests on."""
    made = await create(api, pods, schedulingGates=[OURS])
    (await merge(api, f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})).ok()
    assert refusal(await open_gate(api, made)) == (409, "Conflict")


async def test_a_gate_cannot_be_put_back(api: ApiClient, pods: str) -> None:
    """Nor added to a pod that never had it."""
    (await open_gate(api, await create(api, pods, schedulingGates=[OURS]))).ok()
    assert (await merge(api, f"{pods}/p", {"spec": {"schedulingGates": [OURS]}})).code == 422


async def test_a_pin_cannot_be_undone(api: ApiClient, pods: str) -> None:
    """Neither of an open pod, nor of one that others' gates still hold."""
    pinned = (await open_gate(api, await create(api, pods, schedulingGates=[OURS, THEIRS]))).ok()
    assert pinned["spec"]["schedulingGates"] == [THEIRS]
    assert (await merge(api, f"{pods}/p", {"spec": {"affinity": None}})).code == 422


@pytest.mark.parametrize(("selector", "code"), [({"a": "b", "c": "d"}, 200), ({"a": "c"}, 422), ({"a": None}, 422)])
async def test_a_gated_pod_may_select_fewer_nodes_and_never_others(
    api: ApiClient, pods: str, selector: dict[str, str | None], code: int
) -> None:
    """Labels may be added; those that are there stay as they are."""
    await create(api, pods, schedulingGates=[OURS], nodeSelector={"a": "b"})
    assert (await merge(api, f"{pods}/p", {"spec": {"nodeSelector": selector}})).code == code


async def test_an_open_pod_selects_what_it_has_selected(api: ApiClient, pods: str) -> None:
    """Only gated pods may change it."""
    await create(api, pods)
    assert (await merge(api, f"{pods}/p", {"spec": {"nodeSelector": {"a": "b"}}})).code == 422
