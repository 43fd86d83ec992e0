"""Changes, intents and replies in a few words, for the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.simulated.double.resources import NODES, PODS, Object
from benchmarks.simulated.double.store import StoreChange
from extender.binding.intents import (
    AskForLook,
    BindPod,
    Conflict,
    Done,
    GetClaim,
    GetNode,
    GetPod,
    GetPodVersion,
    Intent,
    ListPods,
    NoAnswer,
    Nominate,
    Refused,
    Reply,
    SwapLedger,
)
from extender.cluster.objects.kinds import Node, Pod
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, decode_ledger, decode_observed, decode_placement
from topology.annotations.status_codec import decode_status
from topology.errors import PayloadError


def words(change: StoreChange) -> str:
    """Say what was written."""
    before, after = change.before, change.after
    name = f"{change.resource.kind} {change.key[1]}"
    if after is None:
        return f"{name} is gone ({uid_of(before)}) @{change.resource_version}"
    if change.resource not in (NODES, PODS):
        return f"{change.resource.kind} {after.get('reason', '')} @{change.resource_version}"
    verb = "created" if before is None else "changed"
    told = "; ".join(_node_words(before or {}, after) if change.resource is NODES else _pod_words(before or {}, after))
    return f"{name} {verb} ({uid_of(after)}) @{change.resource_version}: {told or 'nothing that we read'}"


def intent_words(intent: Intent) -> str:
    """Say what the protocol wants."""
    match intent:
        case GetPod(_, name) | GetPodVersion(_, name):
            return f"look at {name}"
        case GetNode(name):
            return f"look at {name}"
        case AskForLook():
            return f"ask the agent of {intent.node} ({intent.node_uid}) for a look after @{intent.node_version}"
        case Nominate():
            pod = f"{intent.name} ({intent.uid}) @{intent.resource_version}"
            return f"nominate {pod} for {intent.node}" if intent.node else f"take back the nomination of {pod}"
        case ListPods(node):
            return f"list the pods of {node or 'no node'}"
        case SwapLedger():
            how = "create" if intent.expected is None else "swap"
            return f"{how} ledger of {intent.node} ({intent.node_uid}): {ledger_words(intent.ledger)}"
        case BindPod():
            text = intent.annotations.get(keys.PLACEMENT)
            return f"bind {intent.name} ({intent.uid} @{intent.resource_version}) to {intent.node}: {placement_words(text)}"
        case GetClaim():
            return f"look at claim {intent.name}"
        case _:
            return f"{type(intent).__name__} {intent.name} ({intent.uid} @{intent.resource_version})"


def reply_words(reply: Reply) -> str:
    """Say what came back."""
    match reply:
        case Done(tuple() as found):
            return f"done, {len(found)} pods"
        case Done(None):
            return "done"
        case Done(Pod() | Node() as found):
            return f"done @{found.metadata.resource_version}"
        case Conflict(message) | NoAnswer(message) | Refused(_, message):
            return f"{type(reply).__name__}: {message}"
    return type(reply).__name__


def read_ledger(node: Object | None) -> Ledger | None:
    """Return the ledger of a node, `None` when there is none that can be read."""
    try:
        return decode_ledger(annotations_of(node).get(keys.LEDGER, ""))
    except PayloadError:
        return None


def ledger_words(text: str | None) -> str:
    """Say who has claimed what."""
    if text is None:
        return "none"
    try:
        ledger = decode_ledger(text)
    except PayloadError:
        return "unreadable"
    claims = ", ".join(f"{short(c.gpu)}{_share(c)}→{c.name}({c.uid} @{c.resource_version})" for c in ledger.claims)
    return f"#{ledger.generation} {{{claims}}}"


def _share(claim: Claim) -> str:
    return "" if claim.memory_gib is None else f" {claim.memory_gib} GiB {claim.sharing_class}"


def placement_words(text: str | None) -> str:
    """Say which GPUs a record gives."""
    if text is None:
        return "no record"
    return " ".join(short(gpu) for gpus in decode_placement(text).containers.values() for gpu in gpus)


def short(gpu: str) -> str:
    """Shorten a UUID.

    >>> short("GPU-0a1b2c3d-1111-2222-3333-444444444444")
    '0a1b'
    """
    parent, *cut = gpu.removeprefix("MIG-").split("/")
    return "/".join([parent.removeprefix("GPU-")[:4], *cut])


def uid_of(item: Object | None) -> str:
    """Return the UID of an object."""
    return str(item["metadata"]["uid"]) if item else "?"


def annotations_of(item: Object | None) -> dict[str, str]:
    """Return an object's annotations."""
    return (item or {}).get("metadata", {}).get("annotations") or {}


def _node_words(before: Object, after: Object) -> list[str]:
    old, new = annotations_of(before), annotations_of(after)
    told = [
        f"{key.split('/')[1]} {_payload(key, new.get(key))}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    if _ready(before) != _ready(after):
        told.append(f"ready {_ready(after)}")
    return told


def _payload(key: str, text: str | None) -> str:
    if text is None:
        return "removed"
    match key:
        case keys.LEDGER:
            return ledger_words(text)
        case keys.OBSERVED:
            observed = decode_observed(text)
            held = {gpu: observed.shared.get(gpu, (holder,)) for gpu, holder in observed.gpus.items()}
            return "{" + ", ".join(f"{short(gpu)}→{'+'.join(who.name for who in of)}" for gpu, of in held.items()) + "}"
        case keys.STATUS:
            status = decode_status(text)
            return f"#{status.generation} sick {{{' '.join(short(gpu) for gpu in sorted(status.unhealthy))}}}"
    return "written"


def _pod_words(before: Object, after: Object) -> list[str]:
    told = []
    for what, of in _POD_PARTS.items():
        if of(before) != of(after):
            told.append(f"{what} {of(after)}")
    return told


def _status(item: Object) -> dict[str, Any]:
    return item.get("status") or {}


def _ready(item: Object) -> str:
    conditions = _status(item).get("conditions") or []
    return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "?")


def _placed(item: Object) -> str:
    return placement_words(annotations_of(item).get(keys.PLACEMENT))


_POD_PARTS: dict[str, Callable[[Object], object]] = {
    "on": lambda item: (item.get("spec") or {}).get("nodeName"),
    "placed": _placed,
    "fence": lambda item: annotations_of(item).get(keys.FENCE),
    "phase": lambda item: _status(item).get("phase"),
    "containers": lambda item: [next(iter(one["state"])) for one in _status(item).get("containerStatuses") or []],
    "deleted, gone by": lambda item: item.get("metadata", {}).get("deletionTimestamp"),
    "message": lambda item: _status(item).get("message"),
}
