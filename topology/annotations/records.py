"""What is written down about who holds which GPU: the node's ledger, the pod's placement, what the agent observed.

Canonical order is by GPU UUID, pod UID and container, so that equal records are equal texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from topology.annotations.payload import MAX_BYTES, read, write
from topology.annotations.record_schemas import (
    MAX_CONTAINERS,
    ClaimSchema,
    LedgerSchema,
    ObservedSchema,
    PlacementSchema,
)
from topology.errors import PayloadError
from topology.node.links import Affinity
from topology.node.sharing import Limits

if TYPE_CHECKING:
    from topology.bandwidth.predict import Bandwidth


@dataclass(frozen=True, slots=True)
class Claim:
    """One GPU, or a share of its memory, promised to one container of one pod."""

    gpu: str
    """UUID."""
    uid: str
    """The pod's, so that a namesake is somebody else."""
    namespace: str
    name: str
    container: str
    resource_version: str
    """The pod's when the claim was made; the Binding commits only while it still holds."""
    exact: bool = False
    """The container gets this GPU or does not start: the pod's `device-mismatch` is `refuse`."""
    memory_gib: int | None = None
    """GiB of the GPU's memory; `None`: the whole GPU."""
    sharing_class: str = ""
    """Of a share: those of other classes are on other GPUs."""
    compute_percent: int | None = None
    """Of a share: a ceiling on how much of the GPU's multiprocessors it uses; `None`: all of them."""
    parent: str = ""
    """Of a MIG slice: the UUID of its GPU, for when the slice is gone.

    Empty for a GPU, and from extenders that do not write it.
    """


@dataclass(frozen=True, slots=True)
class Ledger:
    """All claims on one node.

    Raises `PayloadError` when one GPU is claimed as a whole and again, by shares of two classes, or twice for one container. What
    shares add up to is not looked at: a ledger does not know how large GPUs are.
    """

    generation: int
    """Grows with every write."""
    claims: tuple[Claim, ...] = ()
    node_uid: str = ""
    """The node incarnation that the claims are about."""
    gpus: tuple[str, ...] | None = None
    """UUIDs that belong to this node and to no other; `None`: an extender wrote it that records none."""

    def __post_init__(self) -> None:
        seen: dict[str, Claim] = {}
        sharers: set[tuple[str, str, str]] = set()
        for position, claim in enumerate(self.claims):
            first = seen.setdefault(claim.gpu, claim)
            sharer = claim.gpu, claim.uid, claim.container
            if first is not claim and (first.memory_gib is None or claim.memory_gib is None):
                raise PayloadError(f"$.claims[{position}].gpu", "one GPU in two claims")
            if first.sharing_class != claim.sharing_class:
                raise PayloadError(f"$.claims[{position}].sharing_class", "two classes on one GPU")
            if sharer in sharers:
                raise PayloadError(f"$.claims[{position}].container", "two shares of one GPU for one container")
            sharers.add(sharer)


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """The GPUs of one pod, as they arrive with its Binding or, with a plan, before.

    Raises `PayloadError` when a container has the same GPU twice.
    """

    containers: Mapping[str, tuple[str, ...]]
    """Container → GPU UUIDs in ring order; an init container may share GPUs with the containers after it."""
    affinity: Affinity | None = None
    """`None` for a single GPU."""
    bandwidth: Bandwidth | None = None
    ledger_generation: int | None = None
    """Of the ledger that holds the claims."""
    nics: tuple[str, ...] = ()
    """RDMA devices under the PCIe switches of the GPUs, by the kernel's names, in the order of the GPUs.

    Left out where the text would be too long with them."""
    memory_gib: Mapping[str, int] = field(default_factory=dict)
    """Container → GiB that it has of its GPU; empty: the GPUs are the pod's own."""
    limits: Limits | None = None
    """What holds the pod to its shares; `None` for whole GPUs."""
    planned_node: str = ""
    """Of a record that was written before the Binding: it holds for a pod that is bound to this node. Empty: with the Binding."""
    planned_fence: str = ""
    """The pod's last fence at that moment: after another one the claims may be gone, and the record does not hold any more."""

    def __post_init__(self) -> None:
        for name, gpus in self.containers.items():
            if len(set(gpus)) != len(gpus):
                raise PayloadError(f"$.containers.{name}", "the same GPU twice")
        for name in self.memory_gib:
            if len(self.containers.get(name, ())) != 1:
                raise PayloadError(f"$.memory_gib.{name}", "a share of anything but one GPU")


@dataclass(frozen=True, slots=True)
class Holder:
    """The container that a node's kubelet gave a GPU to; PodResources knows no pod UID."""

    namespace: str
    name: str
    container: str


@dataclass(frozen=True, slots=True)
class Sharer(Holder):
    """A container that the kubelet gave parts of a GPU to: replicas, or a device of another resource."""

    parts: int = 1


@dataclass(frozen=True, slots=True)
class ClaimUser(Holder):
    """A container that the kubelet gave devices of NVIDIA's DRA driver to; the driver's ResourceSlices name their GPUs."""

    claim: str
    """ResourceClaim of the pod's namespace."""
    pool: str
    devices: tuple[str, ...]
    """Names in the pool, in order."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Which container really holds which GPU."""

    gpus: Mapping[str, Holder]
    """GPU UUID → holder; a GPU that is not here is held by no container, except perhaps by an ordinary init container.

    Of one that is held in parts this is one of its sharers.
    """
    generation: int = 0
    """Of the status that the look was made for, after the write before had ended; 0 when that is not told.

    While it stays behind the status, the agent writes without having been able to look.
    """
    foreign_processes: Mapping[str, int] = field(default_factory=dict)
    """GPU UUID → how many processes compute on a GPU that no container holds; on the wire `strangers`."""
    node_version: str = ""
    """resourceVersion of the node that the agent had heard of before the look began; empty when that is not told."""
    shared: Mapping[str, tuple[Sharer, ...]] = field(default_factory=dict)
    """GPU UUID → every container that holds parts of it, by namespace, name and container."""
    claimed: tuple[ClaimUser, ...] = ()
    """The containers that have devices by ResourceClaims, by namespace, name, container, claim and pool.

    Nobody may conclude anything from a device that is missing: older agents name none, and too many are left out.
    """


_NVIDIA_UUID_CHARACTERS = 40
_BESIDE_CONTAINERS_BYTES = 512
"""Of a placement: all but its containers, however long the numbers are."""


def is_later(version: str, than: str) -> bool:
    """Whether a resourceVersion is of a later write than another; never where either is no decimal number.

    >>> is_later("10", "9"), is_later("9", "9"), is_later("x", "9")
    (True, False, False)
    """
    return _is_number(version) and _is_number(than) and int(version) > int(than)


def _is_number(version: str) -> bool:
    """Whether a resourceVersion is one; etcd counts in 64 bits, and Python refuses to read thousands of digits."""
    return version.isdecimal() and len(version) <= 20


def encode_ledger(ledger: Ledger) -> str:
    """Return the canonical text; raises `PayloadError`."""
    payload: dict[str, Any] = {"generation": ledger.generation}
    if ledger.node_uid:
        payload["node_uid"] = ledger.node_uid
    if ledger.gpus is not None:
        payload["gpus"] = sorted(ledger.gpus)
    payload["claims"] = [
        {
            "gpu": claim.gpu,
            "uid": claim.uid,
            "namespace": claim.namespace,
            "name": claim.name,
            "container": claim.container,
        }
        | ({"resource_version": claim.resource_version} if claim.resource_version else {})
        | ({"exact": True} if claim.exact else {})
        | ({"memory_gib": claim.memory_gib} if claim.memory_gib is not None else {})
        | ({"sharing_class": claim.sharing_class} if claim.sharing_class else {})
        | ({"compute_percent": claim.compute_percent} if claim.compute_percent is not None else {})
        | ({"parent": claim.parent} if claim.parent else {})
        for claim in sorted(ledger.claims, key=_by_gpu)
    ]
    return write(LedgerSchema, payload)


def decode_ledger(text: str | bytes) -> Ledger:
    """Return the ledger, claims by GPU; raises `PayloadError`, also for claims that contradict each other."""
    payload = read(LedgerSchema, text)
    claims = tuple(map(_decode_claim, payload.claims))
    # Checked in the order of the payload, so that the path of a refusal is the reader's.
    gpus = None if payload.gpus is None else tuple(payload.gpus)
    ledger = Ledger(payload.generation, claims, payload.node_uid, gpus)
    in_order = tuple(sorted(claims, key=_by_gpu))
    return ledger if in_order == claims else replace(ledger, claims=in_order)


def _decode_claim(said: ClaimSchema) -> Claim:
    return Claim(
        said.gpu,
        said.uid,
        said.namespace,
        said.name,
        said.container,
        said.resource_version,
        said.exact,
        said.memory_gib,
        said.sharing_class,
        said.compute_percent,
        said.parent or "",
    )


def _by_gpu(claim: Claim) -> tuple[str, str, str]:
    return claim.gpu, claim.uid, claim.container


def encode_placement(record: PlacementRecord) -> str:
    """Return the canonical text; raises `PayloadError`."""
    payload: dict[str, Any] = {"containers": {name: list(gpus) for name, gpus in sorted(record.containers.items())}}
    if record.affinity:
        payload["affinity"] = record.affinity.value
    if record.bandwidth:
        low, point, high = record.bandwidth.low, record.bandwidth.point, record.bandwidth.high
        measured = {"measured": True} if record.bandwidth.measured else {}
        payload["bandwidth_gb_per_s"] = {"low": low, "point": point, "high": high, **measured}
    if record.ledger_generation is not None:
        payload["ledger_generation"] = record.ledger_generation
    if record.memory_gib:
        payload["memory_gib"] = dict(sorted(record.memory_gib.items()))
    if record.limits is not None:
        payload["limits"] = record.limits.value
    if record.planned_node:
        fence = {"fence": record.planned_fence} if record.planned_fence else {}
        payload["planned"] = {"node": record.planned_node, **fence}
    if record.nics:
        with suppress(PayloadError):  # it is too long with them, or wrong without them as well
            return write(PlacementSchema, payload | {"nics": list(record.nics)})
    return write(PlacementSchema, payload)


def can_be_named(containers: Mapping[str, int]) -> bool:
    """Whether a placement can name so many GPUs (of NVIDIA's UUIDs) of each of these containers; linear in containers."""
    per_gpu, per_container = _NVIDIA_UUID_CHARACTERS + len('"",'), len('"":[],')
    named = sum(len(name) + per_container + per_gpu * gpus for name, gpus in containers.items())
    return len(containers) <= MAX_CONTAINERS and named <= MAX_BYTES - _BESIDE_CONTAINERS_BYTES


def decode_placement(text: str | bytes) -> PlacementRecord:
    """Return the placement; raises `PayloadError`."""
    from topology.bandwidth.predict import (
        Bandwidth,  # brings the graph library, which an agent that only observes does without
    )

    payload = read(PlacementSchema, text)
    return PlacementRecord(
        containers={name: tuple(gpus) for name, gpus in sorted(payload.containers.items())},
        affinity=Affinity(payload.affinity) if payload.affinity else None,
        bandwidth=Bandwidth(**payload.bandwidth_gb_per_s.model_dump()) if payload.bandwidth_gb_per_s else None,
        ledger_generation=payload.ledger_generation,
        nics=tuple(payload.nics),
        memory_gib=dict(sorted(payload.memory_gib.items())),
        limits=Limits(payload.limits) if payload.limits else None,
        planned_node=payload.planned.node if payload.planned else "",
        planned_fence=payload.planned.fence if payload.planned else "",
    )


def encode_observed(observed: Observed) -> str:
    """Return the canonical text; raises `PayloadError`."""
    gpus = {uuid: _encode_holder(holder) for uuid, holder in sorted(observed.gpus.items())}
    payload: dict[str, Any] = {"gpus": gpus}
    if observed.generation:
        payload["generation"] = observed.generation
    if observed.foreign_processes:
        payload["strangers"] = dict(sorted(observed.foreign_processes.items()))
    if observed.node_version:
        payload["node_version"] = observed.node_version
    if observed.shared:
        payload["shared"] = {
            uuid: [_encode_holder(sharer) | ({"parts": sharer.parts} if sharer.parts > 1 else {}) for sharer in sharers]
            for uuid, sharers in sorted(observed.shared.items())
        }
    if observed.claimed:
        payload["claimed"] = [
            _encode_holder(user) | {"claim": user.claim, "pool": user.pool, "devices": list(user.devices)}
            for user in observed.claimed
        ]
    return write(ObservedSchema, payload)


def _encode_holder(holder: Holder) -> dict[str, Any]:
    return {"namespace": holder.namespace, "name": holder.name, "container": holder.container}


def decode_observed(text: str | bytes) -> Observed:
    """Return what was observed; raises `PayloadError`."""
    payload = read(ObservedSchema, text)
    gpus = {uuid: Holder(**holder.model_dump()) for uuid, holder in sorted(payload.gpus.items())}
    return Observed(
        gpus,
        payload.generation,
        dict(sorted(payload.strangers.items())),
        payload.node_version,
        {uuid: tuple(Sharer(**each.model_dump()) for each in of) for uuid, of in sorted(payload.shared.items())},
        tuple(ClaimUser(**user.model_dump() | {"devices": tuple(user.devices)}) for user in payload.claimed),
    )
