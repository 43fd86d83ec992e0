"""Contract with the API: what a Binding writes and refuses, and when a pod goes."""

from __future__ import annotations

from benchmarks.processes.client import ApiClient
from tests.contract.requests import bind, create, create_bound, events, merge, pod, refusal, version


async def test_binding_merges_annotations_in_the_same_write(api: ApiClient, pods: str) -> None:
    """A watcher never sees the node without the annotations; what the Binding says wins."""
    made = (
        await api.call("POST", pods, {**pod(), "metadata": {"name": "p", "annotations": {"a": "1", "b": "1"}}})
    ).ok()
    answer = await bind(api, pods, {"b": "2", "c": "3"}, uid=made["metadata"]["uid"])
    assert (answer.code, answer.body["status"]) == (201, "Success")
    [(kind, bound)] = await events(api, pods, 1, resourceVersion=str(version(made)))
    assert (kind, bound["spec"]["nodeName"]) == ("MODIFIED", "n1")
    assert bound["metadata"]["annotations"] == {"a": "1", "b": "2", "c": "3"}
    [condition] = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_binding_honours_uid_and_version(api: ApiClient, pods: str) -> None:
    """A Binding for another incarnation or an older state is refused and changes nothing."""
    made = await create(api, pods)
    assert refusal(await bind(api, pods, {"a": "1"}, uid="00000000-0000-4000-8000-000000000000")) == (409, "Conflict")
    (await merge(api, f"{pods}/p/status", {"metadata": {"annotations": {"example.com/fence": "1"}}})).ok()
    stale = await bind(api, pods, {"a": "1"}, resourceVersion=str(version(made)), uid=made["metadata"]["uid"])
    assert refusal(stale) == (409, "Conflict")
    now = (await api.call("GET", f"{pods}/p")).ok()
    assert "nodeName" not in now["spec"]
    fresh = await bind(api, pods, resourceVersion=str(version(now)), uid=made["metadata"]["uid"])
    assert fresh.code == 201


async def test_a_pod_is_bound_once(api: ApiClient, pods: str) -> None:
    """The second Binding is refused, to the same node as well."""
    await create(api, pods)
    assert (await bind(api, pods)).code == 201
    assert refusal(await bind(api, pods, {"late": "1"})) == (409, "Conflict")
    assert "annotations" not in (await api.call("GET", f"{pods}/p")).ok()["metadata"]


async def test_a_gated_pod_is_not_bound(api: ApiClient, pods: str) -> None:
    """Non-empty schedulingGates refuse the Binding."""
    await create(api, pods, schedulingGates=[{"name": "example.com/wait"}])
    assert refusal(await bind(api, pods)) == (409, "Conflict")


async def test_a_deleting_pod_is_not_bound(api: ApiClient, pods: str) -> None:
    """A pod that waits for its finalizers or its kubelet is refused.

    The double knows no finalizers, so here it is a bound one: deletion is looked at first.
    """
    await create_bound(api, pods)
    await api.call("DELETE", f"{pods}/p")
    answer = await bind(api, pods)
    assert refusal(answer) == (409, "Conflict")
    assert "is being deleted" in answer.body["message"]


async def test_binding_a_missing_pod_is_404(api: ApiClient, pods: str) -> None:
    """Gone is told apart from lost."""
    assert refusal(await bind(api, pods)) == (404, "NotFound")


async def test_a_dry_run_binding_checks_and_writes_nothing(api: ApiClient, pods: str) -> None:
    """The start-up probe of the preconditions needs no pod to be bound."""
    await create(api, pods)
    body = {"metadata": {"name": "p", "uid": "00000000-0000-4000-8000-000000000000"}, "target": {"name": "n1"}}
    assert refusal(await api.call("POST", f"{pods}/p/binding", body, dryRun="All")) == (409, "Conflict")
    del body["metadata"]["uid"]
    assert (await api.call("POST", f"{pods}/p/binding", body, dryRun="All")).code == 201
    assert "nodeName" not in (await api.call("GET", f"{pods}/p")).ok()["spec"]


async def test_an_unbound_pod_goes_at_once(api: ApiClient, pods: str) -> None:
    """No kubelet has to agree."""
    await create(api, pods)
    assert (await api.call("DELETE", f"{pods}/p")).code == 200
    assert (await api.call("GET", f"{pods}/p")).code == 404


async def test_a_bound_pod_stays_until_the_kubelet_lets_go(api: ApiClient, pods: str) -> None:
    """A delete only marks it; the object goes with a delete of grace period 0."""
    await create_bound(api, pods)
    marked = (await api.call("DELETE", f"{pods}/p")).ok()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    assert marked["deletionTimestamp"] > marked["creationTimestamp"]
    assert (await api.call("DELETE", f"{pods}/p")).code == 200
    assert (await api.call("DELETE", f"{pods}/p", {"gracePeriodSeconds": 3600})).code == 200
    assert (await api.call("GET", f"{pods}/p")).ok()["metadata"] == marked
    await api.call("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})
    assert (await api.call("GET", f"{pods}/p")).code == 404


async def test_a_finished_pod_goes_at_once(api: ApiClient, pods: str) -> None:
    """A terminal phase leaves nothing to wait for."""
    await create(api, pods)
    (await bind(api, pods)).ok()
    (await merge(api, f"{pods}/p/status", {"status": {"phase": "Succeeded"}})).ok()
    await api.call("DELETE", f"{pods}/p")
    assert (await api.call("GET", f"{pods}/p")).code == 404


async def test_delete_honours_the_uid(api: ApiClient, pods: str) -> None:
    """A namesake survives."""
    await create(api, pods)
    options = {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}}
    assert refusal(await api.call("DELETE", f"{pods}/p", options)) == (409, "Conflict")
    assert (await api.call("GET", f"{pods}/p")).code == 200
