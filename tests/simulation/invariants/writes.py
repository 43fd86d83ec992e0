"""INV6 by change: what a write has made of an object, for the rule of `tests.world.writes`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.simulated.double.resources import Object
from benchmarks.simulated.double.store import StoreChange
from tests.world import writes

_METADATA_OF_THE_SERVER = ("resourceVersion", "generation")
_OPENED = ("metadata", "metadata.annotations", "spec", "status")
_OURS = {"agent": writes.OF_THE_AGENT, "extender": writes.OF_THE_EXTENDER}


def foreign_writes(writer: str, change: StoreChange) -> list[str]:
    """Return the paths in a change that its writer had no business with; only our own writers are looked at."""
    allowed = _OURS.get(writer.partition("-")[0])
    return [] if allowed is None else writes.foreign(change.resource.plural, changed_paths(change), allowed)


def changed_paths(change: StoreChange) -> Iterator[str]:
    """Yield the dotted paths of all that differs, annotations key by key."""
    if change.before is None:
        yield writes.CREATED
    elif change.after is None:
        yield writes.DELETED
    else:
        yield from _differences(change.before, change.after, "")


def _differences(before: Object, after: Object, prefix: str) -> Iterator[str]:
    for key in sorted({*before, *after}):
        path, old, new = f"{prefix}{key}", before.get(key), after.get(key)
        if old == new or path.removeprefix("metadata.") in _METADATA_OF_THE_SERVER:
            continue
        if path in _OPENED:
            yield from _differences(_mapping(old), _mapping(new), f"{path}.")
        else:
            yield path


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
