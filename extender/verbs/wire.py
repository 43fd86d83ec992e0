"""The bodies of `k8s.io/kube-scheduler/extender/v1`, byte in, byte out.

The Go structs carry no JSON tags, so field names are wire names. Go ignores their case and we do not:
kube-scheduler writes exactly these. Unknown keys are skipped, `null` means absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Annotated, TypeVar

import msgspec

from extender.cluster.objects.kinds import ObjectMeta, Pod, Present
from extender.verbs import strict
from extender.verbs.names import Written

MAX_SCORE = 10
"""`MaxExtenderPriority`; the least is 0."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")]
"""A DNS subdomain, as every object that we name in a path has."""
Uid = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]

_Body = TypeVar("_Body")


class MalformedBody(ValueError):
    """A body that is not what the verb takes; `path` is a JSON path, `$` for the whole body."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{reason} @ {path}")
        self.path = path
        self.reason = reason


class _Wire(msgspec.Struct, frozen=True, rename="pascal"):
    """Fields are spelled as Go spells them: `NodeNames`."""


class WireNodeList(msgspec.Struct, frozen=True):
    """`v1.NodeList`, sent in place of names when `nodeCacheCapable` is off; nodes go back as they came."""

    items: list[msgspec.Raw] | None = None

    def by_name(self) -> dict[str, msgspec.Raw]:
        """Return the nodes by name; raises `msgspec.ValidationError` for one without metadata."""
        return {_decode_named(item).metadata.name: item for item in self.items or ()}


class _Named(msgspec.Struct):
    metadata: ObjectMeta


_decode_named = msgspec.json.Decoder(_Named).decode


class ExtenderArgs(_Wire, frozen=True):
    """What filter and prioritize are asked: one pod, and the nodes that are still in the running."""

    pod: Pod
    nodes: WireNodeList | None = None
    node_names: list[str] | None = None

    def __post_init__(self) -> None:
        if not self.pod.metadata.uid:
            raise ValueError("a pod without metadata.uid")
        if self.nodes is not None:
            self.nodes.by_name()

    @property
    def names(self) -> Collection[str]:
        """The nodes, whichever way they were sent; a name may occur twice."""
        return list(self.nodes.by_name()) if self.nodes is not None else self.node_names or []

    def passing(self, names: list[str]) -> ExtenderFilterResult:
        """Return the answer that these nodes pass, in the form in which they were sent."""
        if self.nodes is None:
            return ExtenderFilterResult(names)
        sent = self.nodes.by_name()
        return ExtenderFilterResult(names, nodes=WireNodeList([sent[name] for name in names]))


class WrittenArgs(ExtenderArgs, frozen=True, kw_only=True):
    """The same with names that nobody has read yet."""

    written: Written

    @property
    def names(self) -> Collection[str]:
        """The nodes; a name may occur twice."""
        return self.written


class ExtenderFilterResult(_Wire, frozen=True, omit_defaults=True):
    """The nodes that pass, and why the others do not. An empty list means that no node passes."""

    node_names: Sequence[str]
    failed_nodes: dict[str, str] | None = None
    """Node → message, where evicting pods could help."""
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    """Node → message, where it could not."""
    error: str = ""
    """Not empty: the call failed, and so does the pod's scheduling cycle."""
    nodes: WireNodeList | None = None
    """The same as `node_names`, for a scheduler that sent whole nodes and takes nothing else."""

    @property
    def reasons(self) -> Counter[str]:
        """How many nodes each message is about."""
        return Counter([*(self.failed_nodes or {}).values(), *(self.failed_and_unresolvable_nodes or {}).values()])


class HostPriority(_Wire, frozen=True, gc=False):
    """One node's score, 0..10; a node that is left out scores 0."""

    host: str
    score: int


class ExtenderBindingArgs(_Wire, frozen=True):
    """Bind this pod to this node; the pod itself is not sent."""

    pod_name: Name
    pod_namespace: Name
    pod_uid: Uid = msgspec.field(name="PodUID")
    node: Name


class ExtenderBindingResult(_Wire, frozen=True):
    """Empty `error`: the pod is bound. kube-scheduler believes it for ever, so it must be true."""

    error: str = ""


class MetaPod(_Wire, frozen=True):
    """A victim by its UID."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(_Wire, frozen=True):
    """The pods of one node that would be evicted, by falling priority."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    @property
    def uids(self) -> list[str]:
        """Whom it is about."""
        return [pod.uid for pod in self.pods or ()]


class Victims(_Wire, frozen=True):
    """As `MetaVictims`, with whole pods, when `nodeCacheCapable` is off."""

    pods: list[Pod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class ExtenderPreemptionArgs(_Wire, frozen=True):
    """The candidate nodes of a preemption, each with its victims."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    @property
    def candidates(self) -> dict[str, MetaVictims]:
        """Node → victims, whichever way they were sent."""
        if self.node_name_to_meta_victims is not None:
            return self.node_name_to_meta_victims
        return {
            name: MetaVictims([MetaPod(pod.metadata.uid) for pod in victims.pods or ()], victims.num_pdb_violations)
            for name, victims in (self.node_name_to_victims or {}).items()
        }


class ExtenderPreemptionResult(_Wire, frozen=True):
    """Replaces the candidates; it has no place for an error, so failure is a status code."""

    node_name_to_meta_victims: dict[str, MetaVictims]


def decode_args(body: bytes) -> ExtenderArgs:
    """Read the body of filter or prioritize; raises `MalformedBody`."""
    return _decode(_ARGS, body)


def decode_filter_args(body: bytes) -> ExtenderArgs:
    """Do the same, but leave names unread that are as kube-scheduler writes them."""
    try:
        sent = _SENT.decode(body)
        strict.check(body)
    except (ValueError, RecursionError):
        return decode_args(body)  # it says what is wrong
    written = Written.read(bytes(sent.node_names)) if sent.nodes is None and sent.pod.metadata.uid else None
    return decode_args(body) if written is None else WrittenArgs(sent.pod, written=written)


def decode_binding_args(body: bytes) -> ExtenderBindingArgs:
    """Read the body of bind; raises `MalformedBody`."""
    return _decode(_BINDING_ARGS, body)


def decode_preemption_args(body: bytes) -> ExtenderPreemptionArgs:
    """Read the body of preempt; raises `MalformedBody`."""
    return _decode(_PREEMPTION_ARGS, body)


class _Sent(_Wire, frozen=True):
    """A body whose names are not read."""

    pod: Pod
    nodes: Present | None = None
    node_names: msgspec.Raw = msgspec.Raw(b"null")


_ARGS = msgspec.json.Decoder(ExtenderArgs)
_SENT = msgspec.json.Decoder(_Sent)
_BINDING_ARGS = msgspec.json.Decoder(ExtenderBindingArgs)
_PREEMPTION_ARGS = msgspec.json.Decoder(ExtenderPreemptionArgs)

encode = msgspec.json.Encoder().encode
"""One answer, or a list of `HostPriority`, as JSON bytes."""


def _decode(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    try:
        decoded = decoder.decode(body)
        strict.check(body)
        return decoded
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        raise MalformedBody(path.rstrip("`") or "$", reason) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedBody("$", str(error)) from error
    except RecursionError as error:
        raise MalformedBody("$", "nested too deep") from error
