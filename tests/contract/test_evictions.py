"""Contract with the API: an eviction is a delete of one incarnation of a pod, as its disruption budget allows."""

from __future__ import annotations

from benchmarks.processes.client import ApiClient
from tests.contract.requests import bind, create, events, merge, pod, refusal, version


def eviction(**options: object) -> dict[str, object]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": options}


async def run(api: ApiClient, pods: str) -> str:
    """Have the pod run, ready, with a label; return its UID."""
    labelled = {**pod(), "metadata": {"name": "p", "labels": {"app": "p"}}}
    made = (await api.call("POST", pods, labelled)).ok()
    (await bind(api, pods)).ok()
    ready = [{"type": "Ready", "status": "True"}]
    (await merge(api, f"{pods}/p/status", {"status": {"phase": "Running", "conditions": ready}})).ok()
    await events(api, pods, 2, resourceVersion=str(version(made)))  # see `create_bound`
    return str(made["metadata"]["uid"])


async def allow(api: ApiClient, pods: str, disruptions: int) -> str:
    """Give the pod a budget; return its path."""
    budgets = pods.replace("api/v1", "apis/policy/v1").removesuffix("pods") + "poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}
    (await api.call("POST", budgets, {"metadata": {"name": "b"}, "spec": spec})).ok()
    status = {
        "disruptionsAllowed": disruptions,
        "observedGeneration": 1,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    (await merge(api, f"{budgets}/b/status", {"status": status})).ok()
    return f"{budgets}/b"


async def test_an_eviction_asks_the_kubelet_to_end_the_pod(api: ApiClient, pods: str) -> None:
    """As a delete does."""
    uid = await run(api, pods)
    answer = await api.call("POST", f"{pods}/p/eviction", eviction(preconditions={"uid": uid}))
    assert (answer.code, answer.body["status"]) == (201, "Success")
    assert "deletionTimestamp" in (await api.call("GET", f"{pods}/p")).ok()["metadata"]


async def test_an_eviction_honours_the_uid(api: ApiClient, pods: str) -> None:
    """A namesake survives."""
    await run(api, pods)
    other = eviction(preconditions={"uid": "00000000-0000-4000-8000-000000000000"})
    assert refusal(await api.call("POST", f"{pods}/p/eviction", other)) == (409, "Conflict")
    assert "deletionTimestamp" not in (await api.call("GET", f"{pods}/p")).ok()["metadata"]


async def test_a_budget_without_disruptions_refuses(api: ApiClient, pods: str) -> None:
    """With 429, and the pod goes on."""
    await run(api, pods)
    await allow(api, pods, 0)
    answer = await api.call("POST", f"{pods}/p/eviction", eviction())
    assert refusal(answer) == (429, "TooManyRequests")
    assert "disruption budget" in answer.body["message"]
    assert "deletionTimestamp" not in (await api.call("GET", f"{pods}/p")).ok()["metadata"]


async def test_an_eviction_spends_what_the_budget_allows(api: ApiClient, pods: str) -> None:
    """So two at once are no more than it says."""
    await run(api, pods)
    budget = await allow(api, pods, 1)
    assert (await api.call("POST", f"{pods}/p/eviction", eviction())).code == 201
    assert (await api.call("GET", budget)).ok()["status"]["disruptionsAllowed"] == 0


async def test_evicting_a_missing_pod_is_404(api: ApiClient, pods: str) -> None:
    """Gone is told apart from refused."""
    assert refusal(await api.call("POST", f"{pods}/p/eviction", eviction())) == (404, "NotFound")


async def test_a_pod_that_waits_is_evicted_whatever_its_budget(api: ApiClient, pods: str) -> None:
    """Nothing of it runs."""
    await create(api, pods)
    await allow(api, pods, 0)
    assert (await api.call("POST", f"{pods}/p/eviction", eviction())).code == 201
