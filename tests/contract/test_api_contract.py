"""What gputopo relies on the Kubernetes API to do: passes against the double and against the real kube-apiserver.

Where the two differ, the real one is right and the double is to be mended.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from benchmarks.client import JSON_PATCH, MERGE_PATCH, Answer, ApiClient
from tests.contract.conftest import Backend
from tests.extender.polling import eventually

NODES = "/api/v1/nodes"


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "example.com/none", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [main], **spec}}


async def create(api: ApiClient, pods: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    return (await api.call("POST", pods, pod(name, **spec))).ok()


async def bind(
    api: ApiClient, pods: str, annotations: dict[str, str] | None = None, node: str = "n1", **metadata: str
) -> Answer:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"metadata": {"name": "p", "annotations": annotations or {}, **metadata}, "target": target}
    return await api.call("POST", f"{pods}/p/binding", body)


async def create_bound(api: ApiClient, pods: str) -> None:
    """Create and bind a pod, and wait until a watch tells it.

    Whoever deletes a pod of which the watch cache does not know yet that it is bound may find it gone at once,
    whatever its grace period (kube-apiserver 1.36.2: 77 of 2,000 in a burst).
    """
    made = await create(api, pods)
    (await bind(api, pods)).ok()
    await events(api, pods, 1, resourceVersion=str(version(made)))


async def merge(api: ApiClient, path: str, patch: dict[str, Any], **query: str) -> Answer:
    return await api.call("PATCH", path, patch, content_type=MERGE_PATCH, **query)


def version(item: dict[str, Any]) -> int:
    return int(item["metadata"]["resourceVersion"])


def refusal(answer: Answer) -> tuple[int, str]:
    assert answer.body["kind"] == "Status"
    assert answer.body["code"] == answer.code
    return answer.code, answer.body["reason"]


async def events(api: ApiClient, path: str, count: int, **query: str) -> list[tuple[str, dict[str, Any]]]:
    """Read `count` events of a watch, or all until the server ends it."""
    told = []
    async with aclosing(api.watch(path, timeoutSeconds="5", **query)) as watch:
        async for event in watch:
            told.append(event)
            if len(told) == count:
                break
    return told


# Identity and versions.


async def test_one_version_grows_over_all_kinds(api: ApiClient, pods: str, node: str) -> None:
    """Every write of any object gets a higher resourceVersion than all before; a list is at least as new."""
    first = version(await create(api, pods))
    second = version((await merge(api, node, {"metadata": {"labels": {"a": "b"}}})).ok())
    third = version((await merge(api, f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})).ok())
    assert first < second < third <= version((await api.call("GET", pods)).ok())


async def test_the_server_gives_identity(api: ApiClient, pods: str) -> None:
    """UID, creation time and generation come from the server; a second object of the name gets another UID."""
    first = (await create(api, pods))["metadata"]
    await api.call("DELETE", f"{pods}/p")
    second = (await create(api, pods))["metadata"]
    assert first["uid"] != second["uid"]
    assert first["creationTimestamp"].endswith("Z")
    assert first["generation"] == 1


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


# Updates and patches.


async def test_a_write_that_changes_nothing_keeps_the_version(api: ApiClient, node: str) -> None:
    """An equal annotation costs no version and wakes no watch."""
    before = (await api.call("GET", node)).ok()
    after = (await merge(api, node, {"metadata": {"annotations": {"example.com/key": "old"}}})).ok()
    assert version(after) == version(before)


async def test_update_with_an_old_version_is_409(api: ApiClient, node: str) -> None:
    """A replacement that was prepared on an older state is refused; one without a version is not."""
    old = (await api.call("GET", node)).ok()
    (await merge(api, node, {"metadata": {"labels": {"a": "b"}}})).ok()
    assert refusal(await api.call("PUT", node, old)) == (409, "Conflict")
    del old["metadata"]["resourceVersion"]
    assert (await api.call("PUT", node, old)).code == 200


@pytest.mark.parametrize(("field", "expected"), [("resourceVersion", (409, "Conflict")), ("uid", (422, "Invalid"))])
async def test_merge_patch_honours_identity(api: ApiClient, node: str, field: str, expected: tuple[int, str]) -> None:
    """A uid or resourceVersion in a merge patch is a precondition; another incarnation is not a Conflict."""
    wrong = {"metadata": {field: "1", "annotations": {"example.com/key": "new"}}}
    right = {"metadata": {field: (await api.call("GET", node)).ok()["metadata"][field], "labels": {"a": "b"}}}
    assert refusal(await merge(api, node, wrong)) == expected
    assert (await merge(api, node, right)).code == 200


def swap(old: str, new: str) -> list[dict[str, str]]:
    path = "/metadata/annotations/example.com~1key"
    return [{"op": "test", "path": path, "value": old}, {"op": "replace", "path": path, "value": new}]


async def test_json_patch_swaps_what_it_expects(api: ApiClient, node: str) -> None:
    """Compare-and-swap of one annotation; `/` in its key is written `~1`."""
    swapped = (await api.call("PATCH", node, swap("old", "new"), content_type=JSON_PATCH)).ok()
    assert swapped["metadata"]["annotations"]["example.com/key"] == "new"


async def test_a_failed_json_patch_test_is_422_and_writes_nothing(api: ApiClient, node: str) -> None:
    """A lost compare-and-swap is Invalid, not Conflict."""
    before = (await api.call("GET", node)).ok()
    answer = await api.call("PATCH", node, swap("other", "new"), content_type=JSON_PATCH)
    assert refusal(answer) == (422, "Invalid")
    assert (await api.call("GET", node)).ok() == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/annotations/missing", "value": "x"},
        {"op": "remove", "path": "/metadata/annotations/missing"},
        {"op": "add", "path": "/metadata/missing/deeper", "value": "x"},
        {"op": "replace", "path": "/metadata/missing/deeper", "value": "x"},
    ],
    ids=lambda operation: str(operation["op"]),
)
async def test_a_json_patch_of_what_is_missing_is_422(api: ApiClient, node: str, operation: Any) -> None:
    """Nothing is compared with, taken from or put into what is not there."""
    assert refusal(await api.call("PATCH", node, [operation], content_type=JSON_PATCH)) == (422, "Invalid")


async def test_a_test_for_null_holds_for_what_is_missing(api: ApiClient, node: str) -> None:
    """An annotation, or all of them: so the first write of an annotation can rest on there being none."""
    path = "/metadata/annotations/example.com~1other"
    first = [{"op": "test", "path": path, "value": None}, {"op": "add", "path": path, "value": "new"}]
    assert (await api.call("PATCH", node, first, content_type=JSON_PATCH)).code == 200
    assert (await api.call("PATCH", node, first, content_type=JSON_PATCH)).code == 422
    (await merge(api, node, {"metadata": {"annotations": None}})).ok()
    all_of_them = "/metadata/annotations"
    every = [
        {"op": "test", "path": all_of_them, "value": None},
        {"op": "add", "path": all_of_them, "value": {"example.com/key": "new"}},
    ]
    assert (await api.call("PATCH", node, every, content_type=JSON_PATCH)).code == 200
    assert (await api.call("PATCH", node, every, content_type=JSON_PATCH)).code == 422


async def test_replace_makes_a_missing_key(api: ApiClient, node: str) -> None:
    """Against RFC 6902: only a `test` beside it makes a replacement conditional."""
    operation = {"op": "replace", "path": "/metadata/annotations/missing", "value": "x"}
    made = (await api.call("PATCH", node, [operation], content_type=JSON_PATCH)).ok()
    assert made["metadata"]["annotations"]["missing"] == "x"


async def test_json_patch_tells_two_nodes_of_one_name_apart(api: ApiClient, node: str) -> None:
    """`test` on /metadata/uid refuses a node that was deleted and made again."""
    first = (await api.call("GET", node)).ok()
    assert (await api.call("DELETE", node)).code == 200
    (await api.call("POST", NODES, {"metadata": {"name": first["metadata"]["name"]}})).ok()
    guard = [{"op": "test", "path": "/metadata/uid", "value": first["metadata"]["uid"]}]
    assert refusal(await api.call("PATCH", node, guard, content_type=JSON_PATCH)) == (422, "Invalid")


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/unheard-of", {}, (415, "UnsupportedMediaType")),
        (MERGE_PATCH, "no object", (400, "BadRequest")),
        (JSON_PATCH, {"op": "no list"}, (400, "BadRequest")),
    ],
)
async def test_patches_that_are_none(
    api: ApiClient, node: str, content_type: str, body: Any, expected: tuple[int, str]
) -> None:
    """An unknown format and an unreadable body are refused as such."""
    assert refusal(await api.call("PATCH", node, body, content_type=content_type)) == expected


@pytest.mark.parametrize(("size", "code"), [(256 * 1024 - len("big"), 200), (256 * 1024, 422)])
async def test_annotations_are_bounded(api: ApiClient, pods: str, size: int, code: int) -> None:
    """256 KiB of keys and values is the most that any object carries."""
    await create(api, pods)
    answer = await merge(api, f"{pods}/p", {"metadata": {"annotations": {"big": "x" * size}}})
    assert answer.code == code


async def test_a_binding_is_not_bounded(api: ApiClient, pods: str) -> None:
    """Annotations that come with a Binding are not counted: whoever binds keeps the limit himself."""
    await create(api, pods)
    assert (await bind(api, pods, {"big": "x" * 256 * 1024})).code == 201


async def test_dry_run_writes_nothing(api: ApiClient, pods: str) -> None:
    """`dryRun=All` answers as if, for every verb."""
    assert (await api.call("POST", pods, pod("other"), dryRun="All")).code == 201
    before = await create(api, pods)
    shown = (await merge(api, f"{pods}/p", {"metadata": {"labels": {"a": "b"}}}, dryRun="All")).ok()
    assert shown["metadata"]["labels"] == {"a": "b"}
    assert (await api.call("DELETE", f"{pods}/p", dryRun="All")).code == 200
    found = (await api.call("GET", pods)).ok()["items"]
    assert [version(item) for item in found] == [version(before)]


# Status and spec.


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


# Binding.


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


# Deletion.


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


# Lists.


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


# Watches.


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


# A busy server.


async def test_a_busy_server_refuses_with_429_and_says_when_to_come_back(backend: Backend) -> None:
    """Of requests that are too many at once some are refused, without a Status; in whole seconds they may come again."""
    with backend.crowded() as kubeconfig:
        async with ApiClient.from_kubeconfig(kubeconfig) as crowd:
            refused = await eventually(lambda: _refused_of_many(crowd), timeout_seconds=60)
    assert all(answer.retry_after_seconds for answer in refused)
    assert not any(answer.body for answer in refused)


async def _refused_of_many(api: ApiClient) -> list[Answer]:
    answers = await asyncio.gather(*(api.call("GET", NODES) for _ in range(32)))
    return [answer for answer in answers if answer.code == 429]
