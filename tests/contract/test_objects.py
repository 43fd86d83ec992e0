"""Contract with the API: who gives objects their identity, version, status and spec."""

from __future__ import annotations

import pytest

from benchmarks.processes.client import MERGE_PATCH, ApiClient
from tests.contract.requests import create, merge, pod, refusal, version


async def test_one_version_grows_over_all_kinds(api: ApiClient, pods: str, node: str) -> None:
    """Every write of any object gets a higher resourceVersion than all before; a list is at least as new."""
    first = version(await create(api, pods))
    second = version((await merge(api, node, {"metadata": {"labels": {"a": "b"}}})).ok())
    third = version((await merge(api, f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})).ok())
    assert first < second < third <= version((await api.call("GET", pods)).ok())


async def test_the_server_gives_identity(api: ApiClient, pods: str) -> None:
    """UID and creation time come from the server; a second object of the name gets another UID."""
    first = (await create(api, pods))["metadata"]
    await api.call("DELETE", f"{pods}/p")
    second = (await create(api, pods))["metadata"]
    assert first["uid"] != second["uid"]
    assert first["creationTimestamp"].endswith("Z")


async def test_a_name_is_taken_once(api: ApiClient, pods: str) -> None:
    """Creating what is there is 409 AlreadyExists, unlike every lost race."""
    await create(api, pods)
    assert refusal(await api.call("POST", pods, pod())) == (409, "AlreadyExists")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_what_is_not_there_is_404(api: ApiClient, pods: str, method: str) -> None:
    """Every verb says NotFound about a missing object."""
    content_type = MERGE_PATCH if method == "PATCH" else "application/json"
    body = None if method in ("GET", "DELETE") else pod()
    answer = await api.call(method, f"{pods}/p", body, content_type=content_type)
    assert refusal(answer) == (404, "NotFound")


async def test_a_missing_namespace_is_404(api: ApiClient) -> None:
    """Nothing is created in a namespace that does not exist."""
    assert refusal(await api.call("POST", "/api/v1/namespaces/nowhere/pods", pod())) == (404, "NotFound")


async def test_limits_are_requests(api: ApiClient, pods: str) -> None:
    """A container that only names a limit requests as much."""
    made = await create(api, pods)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "4"}
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["status"]["phase"] == "Pending"


async def test_status_cannot_change_the_spec_but_annotations(api: ApiClient, pods: str) -> None:
    """A patch of pods/status drops its spec and keeps its metadata: that is what a fence is made of."""
    before = await create(api, pods)
    patch = {
        "metadata": {"annotations": {"example.com/fence": "1"}},
        "spec": {"nodeName": "n1", "priority": 7},
        "status": {"message": "seen"},
    }
    after = (await merge(api, f"{pods}/p/status", patch)).ok()
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"] == {"example.com/fence": "1"}
    assert after["status"]["message"] == "seen"
    assert version(after) > version(before)


async def test_the_main_resource_cannot_change_the_status(api: ApiClient, pods: str) -> None:
    """A patch of the pod itself drops its status."""
    before = await create(api, pods)
    after = (await merge(api, f"{pods}/p", {"status": {"phase": "Running"}})).ok()
    assert after["status"] == before["status"]


async def test_only_a_binding_sets_the_node(api: ApiClient, pods: str) -> None:
    """The spec of a pod is fixed."""
    await create(api, pods)
    assert refusal(await merge(api, f"{pods}/p", {"spec": {"nodeName": "n1"}})) == (422, "Invalid")


async def test_a_node_is_created_with_its_status(api: ApiClient, node: str) -> None:
    """One POST makes a schedulable node; later, only nodes/status changes its status."""
    patch = {"status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}}
    await merge(api, node, patch)
    assert "allocatable" not in (await api.call("GET", node)).ok()["status"]
    assert (await merge(api, f"{node}/status", patch)).ok()["status"]["allocatable"] == {"nvidia.com/gpu": "8"}
