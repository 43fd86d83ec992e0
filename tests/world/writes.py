"""INV6, what one write may change: one rule for whoever sees requests, and for whoever sees what became of an object.

Both say which paths a write changes, with dots, and annotations key by key. `tests.process.calls` reads them in a request, which
also says what it is for; `tests.simulation.invariants.writes` compares an object with what it was, and has to guess that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from topology.annotations import keys

CREATED, DELETED = "(created)", "(deleted)"
"""The path of an object that came or went as a whole."""
NODE_NAME = "spec.nodeName"


def annotation(key: str) -> str:
    """Return the path of an annotation."""
    return f"metadata.annotations.{key}"


@dataclass(frozen=True, slots=True)
class Write:
    """One kind of write, and all that it may change."""

    resource: str
    """In the plural, as in the API's paths."""
    paths: frozenset[str]


def _write(resource: str, *paths: str) -> Write:
    return Write(resource, frozenset(paths))


LEDGER = _write("nodes", annotation(keys.LEDGER))
ASK = _write("nodes", annotation(keys.LOOK))
FENCE = _write("pods", annotation(keys.FENCE))
RECORD = _write("pods", annotation(keys.PLACEMENT))
_SERVERS_OWN = ("status.conditions", "status.nominatedNodeName")
"""What the API server changes with every Binding."""
BINDING = _write("pods", annotation(keys.PLACEMENT), NODE_NAME, *_SERVERS_OWN)
NOMINATION = _write("pods", annotation(keys.NOMINATED), "status.nominatedNodeName")
OPENING = _write(
    "pods",
    annotation(keys.PLANNED),
    annotation(keys.PLACEMENT),
    "spec.schedulingGates",
    "spec.affinity",
    "status.conditions",
)
EVICTION = _write("pods", "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds")
EVICTION_UNBOUND = _write("pods", DELETED)
"""What an eviction makes of a pod that no kubelet has."""
EVENT = _write("events", CREATED)
OF_THE_EXTENDER = (LEDGER, ASK, FENCE, RECORD, BINDING, NOMINATION, OPENING, EVICTION, EVICTION_UNBOUND, EVENT)
OF_THE_AGENT = (_write("nodes", *map(annotation, (keys.TOPOLOGY, keys.TOPOLOGY_DIGEST, keys.STATUS, keys.OBSERVED))),)


def foreign(resource: str, paths: Iterable[str], writes: Iterable[Write]) -> list[str]:
    """Return which of the changed paths are none of their writer's business, who may make any one of `writes` at a time."""
    changed = list(paths)
    excesses = [[path for path in changed if path not in write.paths] for write in writes if write.resource == resource]
    return min(excesses, key=len, default=changed)
