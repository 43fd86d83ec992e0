"""A cluster in a file: the fields that are read here of its nodes and pods and of DRA's allocations, and no others.

The file is a `List` of nodes and pods as kubectl prints one, so `kubectl get nodes,pods -A -o json` makes one too. Ours
is compressed and leaves out what may be secret. That is images, commands, environment, volumes, and the annotations and
messages of others. Names of nodes, namespaces and pods stay, and so do the nodes' labels and the words by which pods name
their group.
"""

from __future__ import annotations

import gzip
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from extender.cluster.objects.devices import ResourceClaim, ResourceSlice
from extender.cluster.objects.group_words import ANNOTATIONS, LABELS
from extender.cluster.objects.kept_pods import without_constraints
from extender.cluster.objects.kinds import (
    ContainerState,
    ContainerStatus,
    Node,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
)
from extender.inspect.control_plane import ControlPlane
from extender.kubectl.claim_holdings import holdings_of
from extender.kubernetes.documents import BrokenStream, decoder
from topology.annotations import keys

_OURS: Final = (keys.USER_PREFIX, keys.AGENT_PREFIX, keys.EXTENDER_PREFIX)
_GZIP: Final = b"\x1f\x8b"
MAX_UNPACKED_BYTES: Final = 1 << 30
"""Of a file; 5,000 nodes and 50,000 pods are a tenth of it, and a small file can unpack to any size."""


class Unreadable(Exception):
    """That is no snapshot; the text names the file and the reason."""


class SelectingSpec(PodSpec, frozen=True, rename="camel"):
    """With the labels that a node must have: by one of them pods name models of GPUs."""

    node_selector: dict[str, str] | None = None


class PodAsListed(Pod, frozen=True):
    """A pod with its node selector."""

    spec: SelectingSpec = SelectingSpec()


@dataclass(frozen=True, slots=True)
class AgentReadings:
    """What agents have told of their GPUs: node → UUID → series → value, and of which nodes nothing was heard, and why."""

    told: dict[str, dict[str, dict[str, float]]]
    failed: dict[str, str]

    @property
    def bare(self) -> AgentReadings:
        """The same without the words in which others say why not."""
        return AgentReadings(
            self.told, dict.fromkeys(self.failed, "its agent told nothing when the snapshot was taken")
        )


class _Item(msgspec.Struct):
    kind: str = ""


class _File(msgspec.Struct):
    items: list[msgspec.Raw]
    kind: str = ""
    taken: float | None = None
    use: AgentReadings | None = None
    control_plane: dict[str, Any] | None = None
    device_classes: dict[str, str | None] | None = None

    @property
    def kind_of_all(self) -> str:
        """Of items that do not say: in a `NodeList` they need not."""
        return self.kind.removesuffix("List")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster as of one moment."""

    nodes: list[Node]
    pods: list[Pod]
    taken: float
    """Seconds since the epoch."""
    namespace: str = "default"
    """Which one is meant where nobody names one."""
    claims: list[ResourceClaim] = field(default_factory=list)
    """Those that hold GPUs, where they may be read."""
    slices: list[ResourceSlice] = field(default_factory=list)
    """Of NVIDIA's driver, where they may be read."""
    claims_trouble: str | None = None
    """Why these could not be read."""
    device_classes: Mapping[str, str | None] | None = None
    """The resource that each DeviceClass maps, if any; `None`: they were not read."""
    use: AgentReadings | None = None
    """What GPUs do; `None` where the agents were not asked."""
    control_plane: ControlPlane | None = None
    """What API server and extender say of themselves; `None` where they were not asked."""

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file, or standard input where it is `-`; raises `Unreadable`."""
        try:
            text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
            document = msgspec.json.decode(_unpacked(text) if text.startswith(_GZIP) else text, type=_File)
            nodes, pods, claims, slices = _split(document)
            plane = ControlPlane.model_validate(document.control_plane) if document.control_plane else None
        except OSError as error:
            raise Unreadable(f"{file}: {error.strerror or error}") from error
        except (ValueError, BrokenStream, EOFError, RecursionError, zlib.error) as error:
            raise Unreadable(f"{file}: no snapshot of a cluster: {' '.join(str(error).split())}") from error
        taken = time.time() if document.taken is None else document.taken
        return cls(
            nodes,
            pods,
            taken,
            claims=claims,
            slices=slices,
            device_classes=document.device_classes,
            use=document.use,
            control_plane=plane,
        )

    def write(self, file: Path) -> None:
        """Write it, to standard output where `file` is `-`; raises `Unreadable`."""
        items = [*map(_node_item, self.nodes), *map(_pod_item, self.pods)]
        items += [*map(_device_item, self.claims), *map(_device_item, self.slices)]
        answers: dict[str, Any] = {"use": self.use.bare} if self.use else {}
        if self.control_plane:
            answers["control_plane"] = self.control_plane.model_dump()
        if self.device_classes is not None:
            answers["device_classes"] = self.device_classes
        document = {"apiVersion": "v1", "kind": "List", "taken": self.taken, **answers, "items": items}
        text = gzip.compress(msgspec.json.encode(document), mtime=int(self.taken))
        try:
            if str(file) == "-":
                sys.stdout.buffer.write(text)
            else:
                file.write_bytes(text)
        except OSError as error:
            raise Unreadable(f"{file}: {error.strerror or error}") from error


def _unpacked(text: bytes) -> bytes:
    """Return what was compressed; raises `ValueError` for more than any cluster takes."""
    with gzip.GzipFile(fileobj=BytesIO(text)) as packed:
        unpacked = packed.read(MAX_UNPACKED_BYTES + 1)
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise ValueError(f"more than {MAX_UNPACKED_BYTES} bytes")
    return unpacked


def _split(document: _File) -> tuple[list[Node], list[Pod], list[ResourceClaim], list[ResourceSlice]]:
    read_node, read_pod = decoder(Node), decoder(PodAsListed)
    read_claim, read_slice = decoder(ResourceClaim), decoder(ResourceSlice)
    nodes, pods, claims, slices = list[Node](), list[Pod](), list[ResourceClaim](), list[ResourceSlice]()
    for text in document.items:
        kind = msgspec.json.decode(text, type=_Item).kind or document.kind_of_all
        match kind:
            case "Node":
                nodes.append(read_node(text))
            case "Pod":
                pods.append(read_pod(text))
            case "ResourceClaim":
                claims.append(holdings_of(read_claim(text)))  # the rest of a claim may be secret
            case "ResourceSlice":
                slices.append(read_slice(text))
            case _:
                raise BrokenStream(f"{kind or 'an item without kind'}, and neither a Node nor a Pod")
    return nodes, pods, claims, slices


def _node_item(node: Node) -> dict[str, Any]:
    conditions = [msgspec.structs.replace(condition, message="") for condition in node.status.conditions or ()]
    status = msgspec.structs.replace(node.status, conditions=conditions)
    bare = msgspec.structs.replace(node, metadata=_own(node.metadata), status=status)
    return {"apiVersion": "v1", "kind": "Node", **_plain(bare)}


def _pod_item(pod: Pod) -> dict[str, Any]:
    bare = msgspec.structs.replace(
        pod,
        metadata=_of_groups(pod.metadata),
        spec=_bare_spec(pod.spec),
        status=_bare_status(pod.status),
    )
    return {"apiVersion": "v1", "kind": "Pod", **_plain(bare)}


def _device_item(item: ResourceClaim | ResourceSlice) -> dict[str, Any]:
    bare = msgspec.structs.replace(item, metadata=msgspec.structs.replace(_own(item.metadata), labels=None))
    return {"apiVersion": "resource.k8s.io/v1", "kind": type(item).__name__, **_plain(bare)}


def _own(metadata: ObjectMeta, also: frozenset[str] = frozenset()) -> ObjectMeta:
    given = metadata.annotations or {}
    annotations = {key: text for key, text in given.items() if key.startswith(_OURS) or key in also}
    return msgspec.structs.replace(metadata, annotations=annotations)


def _of_groups(metadata: ObjectMeta) -> ObjectMeta:
    labels = metadata.labels or {}
    read = {key: labels[key] for key in sorted(LABELS & labels.keys())}
    return msgspec.structs.replace(_own(metadata, ANNOTATIONS), labels=read or None)


def _bare_spec(spec: PodSpec) -> PodSpec:
    gates = [{"name": str(gate.get("name", ""))} for gate in spec.scheduling_gates or ()]
    bare = msgspec.structs.replace(without_constraints(spec), scheduling_gates=gates or None)
    if spec.node_name:
        return bare
    return msgspec.structs.replace(bare, node_selector=spec.node_selector, tolerations=spec.tolerations)


def _bare_status(status: PodStatus) -> PodStatus:
    """Return the status without what containers and DRA drivers say in it."""

    def bare(statuses: list[ContainerStatus] | None) -> list[ContainerStatus] | None:
        return [msgspec.structs.replace(status, state=_bare_state(status.state)) for status in statuses or ()] or None

    return msgspec.structs.replace(
        status,
        extended_resource_claim_status=None if status.extended_resource_claim_status is None else {},
        container_statuses=bare(status.container_statuses),
        init_container_statuses=bare(status.init_container_statuses),
    )


def _bare_state(state: ContainerState) -> ContainerState:
    return ContainerState(
        *(None if phase is None else {} for phase in (state.waiting, state.running, state.terminated))
    )


def _plain(item: Node | Pod | ResourceClaim | ResourceSlice) -> dict[str, Any]:
    """Return the object without what is empty in it; the length of its text is no field of Kubernetes."""
    fields: dict[str, Any] = msgspec.to_builtins(item)
    fields.pop("json_bytes", None)
    return {key: _filled(value) for key, value in fields.items()}


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return value
