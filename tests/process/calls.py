"""One request to the API server in the protocol's words, and whether an extender has any business with it (INV6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from extender.kubernetes.rest import pointer
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
        """`nodes` or `pods`."""
        return "nodes" if "/nodes" in self.path else "pods"

    @property
    def document(self) -> Any:
        """The JSON of the body."""
        return msgspec.json.decode(self.body)


def foreign_writes(call: Call) -> Iterator[str]:
    """Yield what the request would change and is not the extender's (INV6)."""
    match call.kind:
        case Kind.LEDGER if isinstance(call.document, list):
            paths = [operation["path"] for operation in call.document if operation["op"] != "test"]
            allowed = {pointer(keys.LEDGER)}
        case Kind.LEDGER:
            paths, allowed = list(_leaves(call.document)), _only(keys.LEDGER)
        case Kind.ASK:
            paths, allowed = list(_leaves(call.document)), _only(keys.LOOK)
        case Kind.FENCE:
            paths, allowed = list(_leaves(call.document)), _only(keys.FENCE)
        case Kind.RECORD:
            paths, allowed = list(_leaves(call.document)), _only(keys.PLACEMENT)
        case Kind.BINDING:
            paths, allowed = list(_leaves(call.document["metadata"], "/metadata")), _only(keys.PLACEMENT)
        case Kind.OTHER:
            paths, allowed = ["anything"], set()
        case _:
            return
    yield from (f"INV6: {call.method} {call.path} changes {path}" for path in paths if path not in allowed)


def _only(key: str) -> set[str]:
    identity = {f"/metadata/{name}" for name in ("namespace", "name", "uid", "resourceVersion")}
    return identity | {f"/metadata/annotations/{key}"}


def _leaves(document: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}/{key}")
        else:
            yield f"{above}/{key}"
