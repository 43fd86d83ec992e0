"""What an intent is as an HTTP request, and what an HTTP answer means as a reply; no socket.

Every write names what it rests on: a JSON Patch with `test` operations, or an object with UID and resourceVersion.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

import msgspec

from extender.binding.intents import (
    AllocateClaim,
    AskForLook,
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetClaim,
    GetNode,
    GetPod,
    GetPodVersion,
    Gone,
    MarkClaim,
    NoAnswer,
    Nominate,
    OpenGate,
    Refused,
    Reply,
    Single,
    SwapLedger,
    WritePlacement,
)
from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.kinds import Node, Pod
from extender.kubernetes.documents import BrokenStream, decoder, read_metadata
from topology.annotations import keys

FIELD_MANAGER: Final = "gputopo-extender"
QUEUE: Final = "gputopo-queue"
"""Its field manager for scheduling gates."""
STEERING: Final = "gputopo-steering"
"""Its field manager for nominations, so that people see who has made one."""
_JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
"""Removes one gate by its name; a merge patch would have to name all that stay."""
_JSON: Final = "application/json"
_FAILED_TEST: Final = "the server rejected our request due to an error in our request"
"""All that the API server says of a JSON Patch that does not apply; whoever else answers 422 gives a reason."""
_MAX_WORDS: Final = 256
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What was asked for and done is the same; only the answer leaves out spec and status."""


Flow = tuple[str, str, str]
"""Method, resource, and what of it: requests that the API server may turn away together, while it serves others."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `path` is percent-encoded and may carry a query."""

    method: str
    path: str
    body: bytes | None = None
    content_type: str = _JSON
    accept: str = _JSON
    may_be_too_many: bool = False
    """A 429 is an answer about this object, and not of a server that is busy with all of its kind."""

    @property
    def flow(self) -> Flow:
        """Which kind of request this is, whatever the names in it.

        >>> Request("POST", "/api/v1/namespaces/ml/pods/p1/binding?fieldManager=x").flow
        ('POST', 'pods', 'binding')
        >>> Request("GET", "/api/v1/nodes?limit=500").flow, Request("GET", "/api/v1/nodes/n1").flow
        (('GET', 'nodes', 'all'), ('GET', 'nodes', 'one'))
        >>> Request("GET", "/version").flow
        ('GET', 'version', 'all')
        """
        group, *rest = self.path.partition("?")[0].strip("/").split("/")
        parts = {"api": rest[1:], "apis": rest[2:]}.get(group, [group])
        if parts[0] == "namespaces" and len(parts) > 2:
            parts = parts[2:]
        resource, *names = parts
        return self.method, resource, names[1] if len(names) > 1 else "one" if names else "all"


UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a body raises."""
Send = Callable[[Request], Awaitable[tuple[int, bytes]]]
"""Sends a request and returns status and body; raises `Unavailable` without an answer."""


class _Status(msgspec.Struct):
    message: str = ""


_decode_pod = decoder(Pod)
_decode_node = decoder(Node)
_decode_claim = decoder(ResourceClaim)
_decode_status = msgspec.json.Decoder(_Status).decode
_encode = msgspec.json.encode


def to_request(intent: Single) -> Request:
    """Put an intent into words that the API server understands."""
    match intent:
        case GetPod(namespace, name):
            return Request("GET", _pod_path(namespace, name))
        case GetPodVersion(namespace, name):
            return Request("GET", _pod_path(namespace, name), accept=_METADATA_ONLY)
        case GetNode(name):
            return Request("GET", _node_path(name))
        case SwapLedger():
            return _create_ledger(intent) if intent.expected is None else _swap_ledger(intent)
        case BindPod():
            return _bind(intent)
        case FencePod():
            return replace(_annotate_pod(intent, {keys.FENCE: intent.mark}), accept=_METADATA_ONLY)
        case WritePlacement():
            return _annotate_pod(intent, {keys.PLACEMENT: intent.placement})
        case Nominate():
            return _nominate(intent)
        case OpenGate():
            return _open_gate(intent)
        case AskForLook():
            metadata = {"uid": intent.node_uid, "annotations": {keys.LOOK: intent.node_version}}
            path = managed(_node_path(intent.node))
            return Request("PATCH", path, _encode({"metadata": metadata}), MERGE_PATCH)
        case GetClaim() | MarkClaim() | AllocateClaim():
            return _of_claim(intent)


def to_reply(intent: Single, status: int, body: bytes) -> Reply:
    """Say what an answer to `intent` means; what cannot be understood is no answer.

    A Binding creates, and all else reads or changes: any other success is of somebody who did neither.
    """
    if status == (201 if isinstance(intent, BindPod) else 200):
        return _done(intent, body)
    message = words_of(status, body)
    match status:
        case 404:
            return Gone()
        case 409:
            return Conflict(message)
        case 422 if isinstance(intent, SwapLedger) and message == f"422: {_FAILED_TEST}":
            return Conflict(message)
        case 408 | 429:
            return NoAnswer(message)
        case _ if 400 <= status < 500:
            return Refused(status, message)
    return NoAnswer(message)


def pointer(key: str) -> str:
    """Return the JSON Pointer of an annotation.

    >>> pointer("alloc.gputopo.dev/ledger")
    '/metadata/annotations/alloc.gputopo.dev~1ledger'
    """
    return "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")


def _swap_ledger(intent: SwapLedger) -> Request:
    tests = [("/metadata/uid", intent.node_uid), (pointer(keys.LEDGER), intent.expected)]
    planned_on = ((keys.TOPOLOGY_DIGEST, intent.digest), (keys.STATUS, intent.status))
    tests += [(pointer(key), text) for key, text in planned_on if text is not None]
    patch: list[dict[str, Any]] = [{"op": "test", "path": path, "value": value} for path, value in tests]
    patch.append({"op": "replace", "path": pointer(keys.LEDGER), "value": intent.ledger})
    return Request("PATCH", managed(_node_path(intent.node)), _encode(patch), _JSON_PATCH)


def _create_ledger(intent: SwapLedger) -> Request:
    """Rest on the resourceVersion, which stands for UID, digest and absence at once."""
    metadata = {
        "uid": intent.node_uid,
        "resourceVersion": intent.resource_version,
        "annotations": {keys.LEDGER: intent.ledger},
    }
    return Request("PATCH", managed(_node_path(intent.node)), _encode({"metadata": metadata}), MERGE_PATCH)


def _bind(intent: BindPod) -> Request:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "namespace": intent.namespace,
            "name": intent.name,
            "uid": intent.uid,
            "resourceVersion": intent.resource_version,
            "annotations": dict(intent.annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": intent.node},
    }
    path = _pod_path(intent.namespace, intent.name) + "/binding"
    return Request("POST", managed(path), _encode(binding))


def _nominate(intent: Nominate) -> Request:
    """Write the field and our mark at once; for this version only, so that nobody else's nomination is overwritten."""
    node = intent.node or None
    metadata = {
        "uid": intent.uid,
        "resourceVersion": intent.resource_version,
        "annotations": {keys.NOMINATED: node},
    }
    body = {"metadata": metadata, "status": {"nominatedNodeName": node}}
    path = _pod_path(intent.namespace, intent.name) + "/status"
    return Request("PATCH", managed(path, STEERING), _encode(body), MERGE_PATCH)


def _open_gate(intent: OpenGate) -> Request:
    """Name the node by a field: labels of hostnames may differ from the names of nodes, and need not be unique."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [intent.node]}]}
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": keys.PLAN_GATE}]}
    affinity = (
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        if intent.is_pinned
        else {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
    )
    record = {keys.PLACEMENT: intent.placement} if intent.placement else {}
    metadata = {
        "uid": intent.uid,
        "resourceVersion": intent.resource_version,
        "annotations": {keys.PLANNED: intent.node, **record},
    }
    if intent.is_directed:
        spec["affinity"] = {"nodeAffinity": affinity}
    path = managed(_pod_path(intent.namespace, intent.name), QUEUE)
    return Request("PATCH", path, _encode({"metadata": metadata, "spec": spec}), _STRATEGIC_PATCH)


def _of_claim(intent: GetClaim | MarkClaim | AllocateClaim) -> Request:
    """Write the finalizer to the object itself: by way of the status it would be dropped without a word."""
    namespace, name = quote(intent.namespace, safe=""), quote(intent.name, safe="")
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
    if isinstance(intent, GetClaim):
        return Request("GET", path)
    metadata: dict[str, Any] = {"uid": intent.uid, "resourceVersion": intent.resource_version}
    if isinstance(intent, AllocateClaim):
        body = {"metadata": metadata, "status": {"allocation": intent.allocation}}
        return Request("PATCH", managed(f"{path}/status"), _encode(body), MERGE_PATCH)
    annotations: dict[str, str | None] = {keys.FENCE: intent.resource_version}
    if intent.pod is not None:
        annotations |= {keys.CLAIM_POD: intent.pod or None}
    metadata |= {"annotations": annotations, "finalizers": [*intent.finalizers]}
    return Request("PATCH", managed(path), _encode({"metadata": metadata}), MERGE_PATCH)


def _annotate_pod(intent: FencePod | WritePlacement, annotations: dict[str, str]) -> Request:
    """Write by way of the status, which is all that we may touch of a pod."""
    metadata = {"uid": intent.uid, "resourceVersion": intent.resource_version, "annotations": annotations}
    path = _pod_path(intent.namespace, intent.name) + "/status"
    return Request("PATCH", managed(path), _encode({"metadata": metadata}), MERGE_PATCH)


def _done(intent: Single, body: bytes) -> Reply:
    try:
        match intent:
            case GetPod() | WritePlacement() | Nominate() | OpenGate():
                return Done(_decode_pod(body))
            case GetPodVersion():
                return Done(Pod(read_metadata(body).metadata))
            case FencePod():
                return Done(msgspec.structs.replace(intent.known, metadata=read_metadata(body).metadata))
            case GetNode() | SwapLedger() | AskForLook():
                return Done(_decode_node(body))
            case GetClaim() | MarkClaim() | AllocateClaim():
                return Done(_decode_claim(body))
            case BindPod():
                return Done(None)
    except BrokenStream as error:
        return NoAnswer(str(error))


def words_of(status: int, body: bytes) -> str:
    """Return what the server says with a status that is no success, on one line.

    >>> words_of(403, b'{"kind":"Status","message":"a policy forbids it"}')
    '403: a policy forbids it'
    >>> words_of(429, b"Too many requests, please try again later."), words_of(502, b"<html>")
    ('429: Too many requests, please try again later.', '502')
    """
    try:
        words = _decode_status(body).message
    except UNREADABLE:
        is_text = body.isascii() and not body.startswith((b"<", b"{", b"["))
        words = body[:_MAX_WORDS].decode() if is_text else ""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in words[:_MAX_WORDS]).split())
    return f"{status}: {line}" if line else str(status)


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def managed(path: str, manager: str = FIELD_MANAGER) -> str:
    """Return a path with the field manager of a write."""
    return f"{path}?fieldManager={manager}"
