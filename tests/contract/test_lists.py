"""Contract with the API: pages, selectors and items of lists."""

from __future__ import annotations

import pytest

from benchmarks.processes.client import ApiClient
from tests.contract.conftest import Backend
from tests.contract.requests import bind, create, events, merge, refusal, version


async def test_pages_show_one_moment(api: ApiClient, pods: str) -> None:
    """What is written between two pages of a list is in neither."""
    for name in "abc":
        await create(api, pods, name)
    first = (await api.call("GET", pods, limit="2")).ok()
    await create(api, pods, "d")
    await api.call("DELETE", f"{pods}/c")
    second = (await api.call("GET", pods, **{"limit": "2", "continue": first["metadata"]["continue"]})).ok()
    assert [item["metadata"]["name"] for item in first["items"] + second["items"]] == ["a", "b", "c"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert "continue" not in second["metadata"]
    assert version(first) == version(second)


async def test_a_page_of_a_compacted_list_is_410(api: ApiClient, pods: str, backend: Backend) -> None:
    """The reader has to begin the list anew."""
    for name in "abc":
        await create(api, pods, name)
    first = (await api.call("GET", pods, limit="2")).ok()
    await create(api, pods, "d")
    backend.compact()
    answer = await api.call("GET", pods, **{"limit": "2", "continue": first["metadata"]["continue"]})
    assert refusal(answer) == (410, "Expired")


async def test_an_unreadable_continue_token_is_400(api: ApiClient, pods: str) -> None:
    """It is no reason to begin anew silently."""
    assert refusal(await api.call("GET", pods, **{"continue": "%%%"})) == (400, "BadRequest")


async def test_selectors(api: ApiClient, pods: str) -> None:
    """Lists can be cut by label, by node, by scheduler and by name."""
    await create(api, pods)
    await create(api, pods, "q", schedulerName="other")
    (await bind(api, pods)).ok()
    await merge(api, f"{pods}/q", {"metadata": {"labels": {"tier": "gold"}}})

    async def names(**query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await api.call("GET", pods, **query)).ok()["items"]]

    assert await names(fieldSelector="spec.nodeName=n1") == ["p"]
    assert await names(fieldSelector="spec.nodeName=") == ["q"]
    assert await names(fieldSelector="spec.schedulerName=other,metadata.name!=p") == ["q"]
    assert await names(labelSelector="tier=gold") == await names(labelSelector="tier") == ["q"]
    assert await names(labelSelector="tier!=gold") == await names(labelSelector="!tier") == ["p"]


async def test_the_pods_of_no_node_are_listed_page_by_page_in_all_namespaces(api: ApiClient, pods: str) -> None:
    """A selection is paged as the whole is: bound pods take no room, and nobody is left out."""
    for name in "pqrst":
        await create(api, pods, name)
    (await bind(api, pods)).ok()
    here, found, token, pages = pods.split("/")[-2], [], "", 0
    while token or not pages:
        more = {"continue": token} if token else {}
        page = (await api.call("GET", "/api/v1/pods", fieldSelector="spec.nodeName=", limit="2", **more)).ok()
        found += [item["metadata"]["name"] for item in page["items"] if item["metadata"]["namespace"] == here]
        token, pages = page["metadata"].get("continue", ""), pages + 1
    assert found == ["q", "r", "s", "t"]
    assert pages >= 2


@pytest.mark.parametrize("query", [{"fieldSelector": "spec.colour=red"}, {"labelSelector": "a b"}])
async def test_an_unknown_selector_is_400(api: ApiClient, pods: str, query: dict[str, str]) -> None:
    """A selector is never ignored."""
    assert refusal(await api.call("GET", pods, **query)) == (400, "BadRequest")


async def test_items_of_a_list_have_no_kind(api: ApiClient, pods: str) -> None:
    """A reader must know what it asked for; a watch and a get say it with every object."""
    await create(api, pods)
    listed = (await api.call("GET", pods)).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in listed["items"][0]
    [(_, told)] = await events(api, pods, 1)
    assert (told["kind"], (await api.call("GET", f"{pods}/p")).ok()["kind"]) == ("Pod", "Pod")
