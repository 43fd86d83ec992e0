"""One request to the API server in the protocol's words, and what it would change (INV6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from tests.world import writes
from topology.annotations import keys


class Kind(StrEnum):
    """What a request is for."""

    LIST = "list"
    WATCH = "watch"
    GET = "get"
    LEDGER = "ledger"
    """The compare-and-swap of a node's ledger."""
    ASK = "ask"
    """The question to a node's agent for a look."""
    BINDING = "binding"
    FENCE = "fence"
    RECORD = "record"
    """The correction of a pod's placement record."""
    EVENT = "event"
    TRIAL = "trial"
    """A dry run: it writes nothing."""
    OTHER = "other"


PROTOCOL_WRITES = frozenset({Kind.LEDGER, Kind.ASK, Kind.BINDING, Kind.FENCE, Kind.RECORD})
_READS = frozenset({Kind.LIST, Kind.WATCH, Kind.GET, Kind.TRIAL})
_MEANT: Mapping[Kind, writes.Write] = {
    Kind.LEDGER: writes.LEDGER,
    Kind.ASK: writes.ASK,
    Kind.BINDING: writes.BINDING,
    Kind.FENCE: writes.FENCE,
    Kind.RECORD: writes.RECORD,
    Kind.EVENT: writes.EVENT,
}
_IDENTITY = frozenset(f"metadata.{name}" for name in ("namespace", "name", "uid", "resourceVersion"))


@dataclass(frozen=True, slots=True)
class Call:
    """One request, read whole."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: float
    """Loop time of its arrival."""

    @property
    def kind(self) -> Kind:
        """What it is for."""
        if "dryRun" in self.query:
            return Kind.TRIAL
        *_, collection, name = ["", *self.path.strip("/").split("/")]
        match self.method:
            case "GET" if "watch" in self.query:
                return Kind.WATCH
            case "GET" if self.query.get("limit") == "1":  # somebody looks for an example
                return Kind.GET
            case "GET":
                return Kind.LIST if name in ("nodes", "pods") else Kind.GET
            case "PATCH" if collection == "nodes":
                return Kind.ASK if keys.LOOK.encode() in self.body else Kind.LEDGER
            case "PATCH" if name == "status":
                return Kind.RECORD if keys.PLACEMENT.encode() in self.body else Kind.FENCE
            case "POST" if name == "binding":
                return Kind.BINDING
            case "POST" if name == "events":
                return Kind.EVENT
        return Kind.OTHER

    @property
    def is_write(self) -> bool:
        """Whether the protocol rests on it."""
        return self.kind in PROTOCOL_WRITES

    @property
    def resource(self) -> str:
        """`nodes` or `pods`; of anything else the last word of the path."""
        words = self.path.split("/")
        return next((each for each in ("nodes", "pods") if each in words), words[-1])

    @property
    def document(self) -> Any:
        """The JSON of the body."""
        return msgspec.json.decode(self.body)


def foreign_writes(call: Call) -> Iterator[str]:
    """Yield what the request would change and is not the extender's: INV6 by request, for the rule of `tests.world.writes`."""
    if call.kind in _READS:
        return
    resource = "events" if call.kind is Kind.EVENT else call.resource
    meant = [_MEANT[call.kind]] if call.kind in _MEANT else []
    for path in writes.foreign(resource, changed_paths(call), meant):
        yield f"INV6: {call.method} {call.path} changes {path}"


def changed_paths(call: Call) -> Iterator[str]:
    """Yield the dotted paths of all that the request would change, annotations key by key."""
    match call.kind:
        case Kind.EVENT:
            yield writes.CREATED
        case Kind.OTHER:
            yield f"anything with {call.method}"
        case Kind.LEDGER if isinstance(call.document, list):
            yield from (_dotted(operation["path"]) for operation in call.document if operation["op"] != "test")
        case Kind.BINDING:
            yield writes.NODE_NAME
            yield from _changes({"metadata": call.document["metadata"]})
        case _:
            yield from _changes(call.document)


def _changes(document: Mapping[str, Any]) -> Iterator[str]:
    """Leave out what a write names its object by: it asks for it, and does not change it."""
    return (path for path in _leaves(document) if path not in _IDENTITY)


def _dotted(pointer: str) -> str:
    return ".".join(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _leaves(document: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"
