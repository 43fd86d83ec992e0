"""Contract with the API: what a nomination of a pod, written as the extender writes it, changes and refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from benchmarks.processes.client import ApiClient, ClientResponse
from extender.binding.intents import Nominate
from extender.kubernetes.rest import STEERING, to_request
from tests.cluster.binaries import is_oldest
from tests.contract.requests import bind, create, create_bound, merge, refusal
from topology.annotations import keys


async def nominate(api: ApiClient, pod: dict[str, Any], node: str = "n1") -> ClientResponse:
    metadata = pod["metadata"]
    intent = Nominate(metadata["namespace"], "p", metadata["uid"], metadata["resourceVersion"], node)
    request = to_request(intent)
    path, _, query = request.path.partition("?")
    assert query == f"fieldManager={STEERING}"
    body = msgspec.json.decode(request.body or b"")
    return await api.call(request.method, path, body, content_type=request.content_type, fieldManager=STEERING)


async def test_a_nomination_and_our_mark_land_in_one_write(api: ApiClient, pods: str) -> None:
    """Nothing else of the pod changes."""
    made = await create(api, pods)
    now = (await nominate(api, made)).ok()
    assert now["status"]["nominatedNodeName"] == "n1"
    assert now["metadata"]["annotations"] == {keys.NOMINATED: "n1"}
    assert (now["spec"], now["status"]["phase"]) == (made["spec"], "Pending")


async def test_both_are_taken_back_in_one_write(api: ApiClient, pods: str) -> None:
    """As if there had been none."""
    nominated = (await nominate(api, await create(api, pods))).ok()
    now = (await nominate(api, nominated, "")).ok()
    assert "nominatedNodeName" not in now["status"]
    assert keys.NOMINATED not in now["metadata"].get("annotations", {})


@pytest.mark.parametrize("node", ["n2", ""])
async def test_what_somebody_else_has_nominated_meanwhile_stays(api: ApiClient, pods: str, node: str) -> None:
    """Whether we would write another one or take ours back: the version is another one."""
    nominated = (await nominate(api, await create(api, pods))).ok()
    (await merge(api, f"{pods}/p/status", {"status": {"nominatedNodeName": "theirs"}})).ok()
    assert refusal(await nominate(api, nominated, node)) == (409, "Conflict")
    assert (await api.call("GET", f"{pods}/p")).ok()["status"]["nominatedNodeName"] == "theirs"


@pytest.mark.skipif(is_oldest(), reason="from Kubernetes 1.35 on")
async def test_a_binding_ends_a_nomination_and_none_follows(api: ApiClient, pods: str) -> None:
    """The mark stays, and says nothing by itself."""
    (await nominate(api, await create(api, pods))).ok()
    assert (await bind(api, pods)).code == 201
    bound = (await api.call("GET", f"{pods}/p")).ok()
    assert "nominatedNodeName" not in bound["status"]
    assert (await nominate(api, bound)).code == 422


async def test_the_pod_of_that_name_that_came_later_is_not_nominated(api: ApiClient, pods: str) -> None:
    """The UID is another one, and the version."""
    first = await create(api, pods)
    await api.call("DELETE", f"{pods}/p")
    await create_bound(api, pods)
    assert (await nominate(api, first)).code in {409, 422}
