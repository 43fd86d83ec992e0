"""JSON Patch as the API server applies it: RFC 6902, but `replace` may name a new key of an object."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.simulated.double.patch import json_patch
from benchmarks.simulated.double.status import StatusError


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": [1, 2]}, {"op": "add", "path": "/a/1", "value": 9}, {"a": [1, 9, 2]}),
        ({"a": [1, 2]}, {"op": "add", "path": "/a/-", "value": 9}, {"a": [1, 2, 9]}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, {"op": "copy", "from": "/a", "path": "/c"}, {"a": {"b": 1}, "c": {"b": 1}}),
        ({"m~n": {"o/p": 1}}, {"op": "replace", "path": "/m~0n/o~1p", "value": 2}, {"m~n": {"o/p": 2}}),
        ({"a": 1}, {"op": "test", "path": "/b", "value": None}, {"a": 1}),
    ],
)
def test_json_patch_operations(document: Any, operation: Any, expected: Any) -> None:
    """Each operation of RFC 6902, with escapes and list positions."""
    assert json_patch(document, [operation]) == expected


@pytest.mark.parametrize("path", ["/a/2", "/a/01x", "/a/-1", "/b/c", "a", "/a/-"])
def test_json_patch_refuses_places_that_are_not_there(path: str) -> None:
    """A position beyond the end, a word for a number, a missing parent, a pointer without its slash."""
    with pytest.raises(StatusError) as refusal:
        json_patch({"a": [1, 2]}, [{"op": "replace", "path": path, "value": 0}])
    assert refusal.value.code == 422
