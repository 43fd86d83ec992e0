"""Contract with the API: what updates and patches rest on, change and refuse."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.processes.client import JSON_PATCH, MERGE_PATCH, ApiClient
from tests.contract.requests import NODES, bind, create, merge, pod, refusal, version


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
    assert answer.body["message"] == "the server rejected our request due to an error in our request"
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
