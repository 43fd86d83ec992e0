"""What the JSON reader of the verbs lets pass and no honest sender writes: the same key twice in one object, above all.

Each reader chooses which of two values counts. So a body could mean one thing to the program that let it through and
another to us. msgspec takes the last one without a word. So objects are read a second time, by a reader that says no. The
list of names, which is nearly all of a large body, holds no objects and is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

_NAMES = b',"NodeNames":'


def check(body: bytes) -> None:
    """Raise `ValueError` for duplicate keys, and for numbers that are none or too long to read; `body` is an object of JSON."""
    at = body.find(_NAMES)
    if at < 0 or body.find(b":", at + len(_NAMES)) >= 0:  # where it is not the last key, as kube-scheduler writes it
        _keys(body)
    elif "NodeNames" in _keys(body[:at] + b"}"):
        raise ValueError("the same key twice in one object")


def _keys(text: bytes) -> frozenset[str]:
    """Return the keys of an object, having read all of it."""
    keys: frozenset[str] = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    return keys


def _unique(pairs: Sequence[tuple[str, Any]]) -> frozenset[str]:
    keys = frozenset(key for key, _ in pairs)
    if len(keys) != len(pairs):
        raise ValueError("the same key twice in one object")
    return keys


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
