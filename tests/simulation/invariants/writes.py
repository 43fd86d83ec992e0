"""INV6: which parts of an object each writer may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.simulated.double.resources import EVENTS, NODES, PODS, Object
from benchmarks.simulated.double.store import Change
from topology.annotations import keys

_METADATA_OF_THE_SERVER = ("resourceVersion", "generation")


def foreign_writes(writer: str, change: Change) -> list[str]:
    """Return the paths in a change that its writer had no business with; only our own writers are looked at."""
    if writer.startswith("agent"):
        return [path for path in changed_paths(change) if not path.startswith("metadata.annotations.topo.gputopo.dev/")]
    if not writer.startswith("extender"):
        return []
    if change.resource is EVENTS and change.before is None:
        return []
    return [path for path in changed_paths(change) if path not in _EXTENDERS[change.resource.plural]]


def changed_paths(change: Change) -> Iterator[str]:
    """Yield the dotted paths of all that differs, annotations key by key; `*` for an object that came or went."""
    if change.before is None or change.after is None:
        yield "*"
        return
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


_OPENED = ("metadata", "metadata.annotations", "spec", "status")
_EXTENDERS = {
    NODES.plural: (f"metadata.annotations.{keys.LEDGER}", f"metadata.annotations.{keys.LOOK}"),
    PODS.plural: (
        f"metadata.annotations.{keys.PLACEMENT}",
        f"metadata.annotations.{keys.FENCE}",
        "spec.nodeName",
        # The API server's own, with every Binding.
        "status.conditions",
        "status.nominatedNodeName",
    ),
}
