"""What the protocol wants done to the Kubernetes API, and what can come back.

An intent is executed by a thin shell (`extender.kubernetes`), by a simulation or by a test; the protocol never knows which.
Every intent gets exactly one reply. `NoAnswer` is the one that hurts: the write may have happened, may still happen, or
neither.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.kinds import Node, ObjectMeta, Pod


@dataclass(frozen=True, slots=True)
class GetPod:
    """Read a pod live (never from a cache); replies `Done(Pod)`, `Gone`, `Refused`, `NoAnswer`."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class GetPodVersion:
    """Read live which version of a pod there is, however large the rest of it is.

    Replies `Done(Pod)` with nothing but its metadata, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class GetNode:
    """Read a node live; replies `Done(Node)`, `Gone`, `Refused`, `NoAnswer`."""

    name: str


@dataclass(frozen=True, slots=True)
class ListPods:
    """List the pods of a node live, or with an empty name those of none, as of one moment; it takes several requests.

    Replies `Done(tuple[Pod, ...])`, `NoAnswer`.
    """

    node: str


@dataclass(frozen=True, slots=True)
class SwapLedger:
    """Replace a node's ledger annotation if and only if nothing it rests on has changed.

    One JSON Patch with `test` on the node's UID, on the old ledger text and, when given, on topology digest and agent's
    status text. `expected` of `None` means "there is none", or none that anything may rest on. Then it is a merge patch
    with `resource_version`. Replies `Done(Node)`, `Conflict` (a test failed), `Gone`, `Refused`, `NoAnswer`.
    """

    node: str
    node_uid: str
    digest: str | None
    expected: str | None
    ledger: str
    resource_version: str
    status: str | None = None


@dataclass(frozen=True, slots=True)
class BindPod:
    """POST the Binding with UID and resourceVersion as preconditions; the annotations land in the same write.

    Replies `Done(None)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FencePod:
    """Move the pod's resourceVersion by a status patch, so that no Binding prepared before can commit.

    The answer is the metadata alone, however large the pod is. Nothing else of the pod can have changed, since the patch
    holds only for the version `known`. Replies `Done(Pod)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    mark: str
    known: Pod = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class WritePlacement:
    """Replace the placement record of a bound pod in exactly this version, by a status patch.

    Replies `Done(Pod)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    placement: str


@dataclass(frozen=True, slots=True)
class Nominate:
    """Say where a waiting pod will probably go, or with an empty `node` take that back, by a status patch of this version.

    Replies `Done(Pod)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Remove our scheduling gate and nobody else's, and direct and record the pod in the same write, for this version of it.

    The pod must have no affinity of its own. Replies `Done(Pod)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    is_pinned: bool
    """Whether it may go to no other node; it prefers this one otherwise. Only a new pod undoes that."""
    is_directed: bool = True
    """Whether its affinity says so. Devices that are allocated there say it otherwise."""
    placement: str = ""
    """The record of what it has claims on there; empty: the record follows once the pod is bound."""


@dataclass(frozen=True, slots=True)
class AskForLook:
    """Have a node's agent report what containers hold, from a look that begins later than a version of the node.

    A merge patch of one annotation with the node's UID; two that cross do no harm, as who is not answered asks again. Being a
    change of the node, it wakes kube-scheduler, too.
    Replies `Done(Node)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    node: str
    node_uid: str
    node_version: str


@dataclass(frozen=True, slots=True)
class GetClaim:
    """Read a ResourceClaim live; replies `Done(ResourceClaim)`, `Gone`, `Refused`, `NoAnswer`."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class MarkClaim:
    """Write our mark, and these finalizers, to a ResourceClaim in exactly this version: no allocation prepared before can commit.

    Replies `Done(ResourceClaim)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    finalizers: tuple[str, ...]
    """All that it is to have."""
    pod: str | None = None
    """UID of the pod for which it is to be from now on, empty: for none; `None`: this stays as it is."""


@dataclass(frozen=True, slots=True)
class AllocateClaim:
    """Write what a ResourceClaim is given, or take that back, in exactly this version of the claim.

    Replies `Done(ResourceClaim)`, `Conflict`, `Gone`, `Refused`, `NoAnswer`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    allocation: Mapping[str, object] | None = field(hash=False)
    """`status.allocation` as JSON; `None`: nothing."""


Single: TypeAlias = (
    GetPod
    | GetPodVersion
    | GetNode
    | SwapLedger
    | BindPod
    | FencePod
    | WritePlacement
    | Nominate
    | OpenGate
    | AskForLook
    | GetClaim
    | MarkClaim
    | AllocateClaim
)
"""What takes one request."""
Intent = Single | ListPods


@dataclass(frozen=True, slots=True)
class Done:
    """It happened; `value` is the object, or are the objects, as the server returned them."""

    value: Pod | Node | ResourceClaim | tuple[Pod, ...] | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A precondition failed (409, or 422 for a JSON Patch test); nothing was written."""

    message: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The object does not exist (404)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server said no for good (400, 403, a policy); nothing was written."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Time-out, reset, 5xx or 429: the outcome is unknown."""

    message: str


Reply = Done | Conflict | Gone | Refused | NoAnswer

T = TypeVar("T")
Step: TypeAlias = Generator[Intent, Reply, T]
"""A piece of the protocol: it yields intents, is sent one reply for each, and returns what came of it."""


def fence(pod: Pod) -> FencePod:
    """Return the intent that fences the pod in exactly this version; the mark is new each time, or nothing would be written."""
    metadata = pod.metadata
    version = metadata.resource_version
    return FencePod(metadata.namespace, metadata.name, metadata.uid, version, mark=version, known=pod)


def read_live(pod: ObjectMeta) -> Step[Pod | None]:
    """Read a pod live; `None` where it cannot be read, or is gone, perhaps with another one of its name there."""
    reply = yield GetPod(pod.namespace, pod.name)
    if not isinstance(reply, Done) or not isinstance(reply.value, Pod):
        return None
    return reply.value if reply.value.metadata.uid == pod.uid else None


def in_words(reply: Reply) -> str:
    """Say why there is nothing to go on with."""
    match reply:
        case Conflict(message) | NoAnswer(message) | Refused(_, message):
            return message
        case Gone():
            return "not found"
    return f"unexpected reply {type(reply).__name__}"
