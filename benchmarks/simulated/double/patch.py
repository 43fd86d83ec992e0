"""JSON Merge Patch (RFC 7386) and JSON Patch (RFC 6902) as functions from document to new document.

Nothing is changed in place: the result shares with the input whatever the patch does not touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from benchmarks.simulated.double.status import bad_request, unprocessable_patch

_MERGED_LISTS: Final = (("spec", "schedulingGates", "name"), ("status", "conditions", "type"))
"""Part of the object, field and merge key."""


def merge_patch(document: Any, patch: Any) -> Any:
    """Return `document` with `patch` merged in; `None` removes a key, a list replaces a list.

    >>> merge_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(document: Any, patch: Any) -> Any:
    """Return `document` with `patch` merged in, as a merge patch is; gates and conditions are merged, or deleted, one by one.

    Other lists with a merge key are not needed here, and are replaced.

    >>> pod = {"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}}
    >>> strategic_merge_patch(pod, {"spec": {"schedulingGates": [{"$patch": "delete", "name": "a"}]}})
    {'spec': {'schedulingGates': [{'name': 'b'}]}}
    >>> strategic_merge_patch({"status": {"conditions": [{"type": "a"}]}}, {"status": {"conditions": [{"type": "b"}]}})
    {'status': {'conditions': [{'type': 'a'}, {'type': 'b'}]}}
    """
    for part, field, key in _MERGED_LISTS:
        items = (patch.get(part) or {}).get(field) if isinstance(patch, dict) else None
        if items is None:
            continue
        deleted = {item.get(key) for item in items if item.get("$patch") == "delete"}
        set_to = {item[key]: item for item in items if item.get("$patch") != "delete"}
        before = [
            item for item in (document.get(part) or {}).get(field) or [] if item[key] not in deleted | set_to.keys()
        ]
        patch = {**patch, part: {**patch[part], field: [*before, *set_to.values()] or None}}
    return merge_patch(document, patch)


def json_patch(document: Any, operations: Any) -> Any:
    """Return `document` after all `operations` (RFC 6902), or refuse with 422.

    >>> json_patch({"a/b": [1, 2]}, [{"op": "replace", "path": "/a~1b/1", "value": 3}])
    {'a/b': [1, 3]}
    """
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Any) -> Any:
    match operation:
        case {"op": "test", "path": str(path)}:
            if _find(document, _segments(path), missing_is_null=True) != operation.get("value"):
                raise unprocessable_patch()
            return document
        case {"op": "add" | "replace" as op, "path": str(path), "value": value}:
            return _put(document, _segments(path), value, replace=op == "replace")
        case {"op": "remove", "path": str(path)}:
            return _remove(document, _segments(path))
        case {"op": "copy", "from": str(source), "path": str(path)}:
            return _put(document, _segments(path), _find(document, _segments(source)))
        case {"op": "move", "from": str(source), "path": str(path)}:
            moved = _find(document, _segments(source))
            return _put(_remove(document, _segments(source)), _segments(path), moved)
    raise bad_request(f"not a JSON patch operation: {operation!r:.200}")


def _segments(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise unprocessable_patch()
    return [segment.replace("~1", "/").replace("~0", "~") for segment in path.split("/")[1:]]


def _child(parent: Any, segment: str) -> Any:
    if isinstance(parent, dict) and segment in parent:
        return parent[segment]
    if isinstance(parent, list):
        return parent[_position(segment, len(parent) - 1)]
    raise unprocessable_patch()


def _position(segment: str, last: int) -> int:
    if not (segment.isascii() and segment.isdecimal()) or int(segment) > last:
        raise unprocessable_patch()
    return int(segment)


def _find(document: Any, segments: Sequence[str], *, missing_is_null: bool = False) -> Any:
    for depth, segment in enumerate(segments, start=1):
        if missing_is_null and depth == len(segments) and isinstance(document, dict):
            return document.get(segment)
        document = _child(document, segment)
    return document


def _put(document: Any, segments: Sequence[str], value: Any, *, replace: bool = False) -> Any:
    """Return `document` with `value` at `segments`; the API server lets `replace` name a new key of an object."""
    if not segments:
        return value
    segment, rest = segments[0], segments[1:]
    if rest:
        value = _put(_child(document, segment), rest, value, replace=replace)
    if isinstance(document, dict):
        return {**document, segment: value}
    if not isinstance(document, list):
        raise unprocessable_patch()
    if rest or replace:
        position = _position(segment, len(document) - 1)
        return [*document[:position], value, *document[position + 1 :]]
    position = len(document) if segment == "-" else _position(segment, len(document))
    return [*document[:position], value, *document[position:]]


def _remove(document: Any, segments: Sequence[str]) -> Any:
    if not segments:
        raise unprocessable_patch()
    segment, rest = segments[0], segments[1:]
    child = _child(document, segment)
    if rest:
        return _put(document, [segment], _remove(child, rest), replace=True)
    if isinstance(document, dict):
        return {key: value for key, value in document.items() if key != segment}
    position = _position(segment, len(document) - 1)
    return [*document[:position], *document[position + 1 :]]
