"""Label and field selectors: equality (`a=b`, `a==b`, `a!=b`) and, for labels, existence (`a`, `!a`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from benchmarks.simulated.double.status import bad_request

Selector = Callable[[dict[str, Any]], bool]

_TERM = re.compile(r"\s*(?P<absent>!?)(?P<key>[\w./-]+)\s*(?:(?P<op>==?|!=)\s*(?P<value>[\w./-]*)\s*)?")


def everything(_: dict[str, Any]) -> bool:
    """Select every object."""
    return True


def selector(labels: str, fields: str, supported_fields: Collection[str]) -> Selector:
    """Return the test that objects must pass; empty texts select everything, unreadable ones get 400."""
    terms = [_label(text) for text in labels.split(",") if text] + [
        _field(text, supported_fields) for text in fields.split(",") if text
    ]
    if not terms:
        return everything
    return lambda item: all(term(item) for term in terms)


def _label(text: str) -> Selector:
    key, op, value, absent = _parse(text)

    def term(item: dict[str, Any]) -> bool:
        labels = item["metadata"].get("labels") or {}
        if not op:
            return (key in labels) is not absent
        return (labels.get(key) == value) is (op != "!=")

    return term


def _field(text: str, supported: Collection[str]) -> Selector:
    key, op, value, _ = _parse(text)
    if not op or key not in supported:
        raise bad_request(f"field label not supported: {key}")
    path = key.split(".")

    def term(item: Any) -> bool:
        for part in path:
            item = item.get(part) or {}
        return ((item or "") == value) is (op != "!=")

    return term


def _parse(text: str) -> tuple[str, str, str, bool]:
    found = _TERM.fullmatch(text)
    if found is None or (found["absent"] and found["op"]):
        raise bad_request(f"unable to parse requirement: {text}")
    return found["key"], found["op"] or "", found["value"] or "", bool(found["absent"])
