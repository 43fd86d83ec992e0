"""Contract with the API: what a watch tells, in which order, and how it ends."""

from __future__ import annotations

import pytest

from benchmarks.processes.client import ApiClient
from tests.contract.conftest import Backend
from tests.contract.requests import bind, create, events, merge, version


async def test_a_watch_tells_every_change_after_a_version_in_order(api: ApiClient, pods: str) -> None:
    """Nothing is missed between a list and the watch that follows it."""
    since = (await api.call("GET", pods)).ok()["metadata"]["resourceVersion"]
    await create(api, pods)
    await merge(api, f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})
    told = await events(api, pods, 2, resourceVersion=since)
    assert [kind for kind, _ in told] == ["ADDED", "MODIFIED"]
    versions = [version(item) for _, item in told]
    assert versions == sorted(set(versions))
    assert versions[0] > int(since)


@pytest.mark.parametrize("bound", [False, True])
async def test_a_pod_that_goes_is_seen_deleting_and_then_deleted(api: ApiClient, pods: str, bound: bool) -> None:
    """Each with a version of its own, an unbound pod too; the last event carries the pod as it was."""
    await create(api, pods)
    if bound:
        (await bind(api, pods)).ok()
    made = (await api.call("GET", f"{pods}/p")).ok()
    await api.call("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})
    [(first, deleting), (second, deleted)] = await events(api, pods, 2, resourceVersion=str(version(made)))
    assert (first, second) == ("MODIFIED", "DELETED")
    assert version(made) < version(deleting) < version(deleted)
    assert deleting["metadata"]["deletionGracePeriodSeconds"] == 0
    assert deleted["metadata"]["deletionTimestamp"] == deleting["metadata"]["deletionTimestamp"]


async def test_a_watch_without_a_version_begins_with_what_is_there(api: ApiClient, pods: str) -> None:
    """First everything as ADDED, then the changes."""
    await create(api, pods, "a")
    await create(api, pods, "b")
    told = await events(api, pods, 2)
    assert sorted((kind, item["metadata"]["name"]) for kind, item in told) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_selecting_watch_sees_objects_come_and_go(api: ApiClient, pods: str) -> None:
    """A pod that is bound leaves the unbound (DELETED) and joins its node's (ADDED)."""
    made = await create(api, pods)
    (await bind(api, pods)).ok()
    since = str(version(made))
    [(left, gone)] = await events(api, pods, 1, fieldSelector="spec.nodeName=", resourceVersion=since)
    [(came, here)] = await events(api, pods, 1, fieldSelector="spec.nodeName=n1", resourceVersion=since)
    assert (left, came) == ("DELETED", "ADDED")
    assert version(gone) == version(here)
    assert ("nodeName" in gone["spec"], here["spec"]["nodeName"]) == (False, "n1")


@pytest.mark.slow
async def test_a_watch_ends_in_time_with_a_bookmark(api: ApiClient, pods: str) -> None:
    """The stream ends without an error; a bookmark tells how far it was, though nothing came."""
    made = await create(api, pods)
    watch = api.watch(pods, timeoutSeconds="5", allowWatchBookmarks="true")
    assert (await anext(watch))[0] == "ADDED"
    other = await create(api, "/api/v1/namespaces/default/pods", made["metadata"]["uid"])
    rest = [event async for event in watch]
    assert {kind for kind, _ in rest} == {"BOOKMARK"}
    assert version(rest[-1][1]) >= version(other)
    assert rest[-1][1]["kind"] == "Pod"


async def test_a_watch_from_a_forgotten_version_is_410_in_the_stream(
    api: ApiClient, pods: str, backend: Backend
) -> None:
    """The HTTP answer is 200; the ERROR event carries the Status, and the stream ends."""
    await create(api, pods)
    backend.compact()
    [(kind, status)] = await events(api, pods, 99, resourceVersion="1")
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
