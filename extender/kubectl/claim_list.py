"""`kubectl gputopo claims`: the ResourceClaims of our DeviceClasses, their GPUs, and the pods that they are for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal
from urllib.parse import quote

import typer
from msgspec.structs import replace

from extender.cluster.objects.devices import (
    CLAIMS_PATH,
    SLICES_PATH,
    SLICES_SELECTOR,
    ClaimSpec,
    ResourceClaim,
    ResourceSlice,
)
from extender.cluster.objects.kinds import Node
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.config.defaults import QUEUE_LEASE
from extender.features.dra.claim_spec import MIG_CLASS, OUR_CLASS
from extender.inspect.inspection import Answer
from extender.inspect.outlook import written
from extender.kit.clock import Instant
from extender.kubectl.form import Form, say
from extender.kubectl.options import Namespace
from extender.kubectl.reading import StateSource, ask, fail
from extender.kubernetes.documents import decoder
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable, list_objects

Everywhere = Annotated[bool, typer.Option("-A", "--all-namespaces", help="The claims of all namespaces.")]
ClaimState = Literal["waiting", "allocated", "reserved", "deleting"]
_Counted = tuple[ResourceClaim, tuple[int, ...]]
"""A claim, and what it requests as `ClaimRow` has it."""
_FEW: Final = 3
"""Pods that a row names."""
_NO_RIGHT: Final = "no right to list resourceclaims, resourceslices or nodes"
_NO_CLAIMS: Final = "the API server has no ResourceClaims of resource.k8s.io/v1, which needs Kubernetes 1.34"
_NOBODY_PLANS: Final = f"nobody plans the claims that wait: no extender holds the Lease {QUEUE_LEASE}"


class ClaimedDevice(Answer):
    """A device of an allocation."""

    name: str
    """As its driver publishes it."""
    uuid: str | None
    """Of its GPU; `None` where no ResourceSlice names it."""
    index: int | None
    """Of its GPU; `None` where the node's topology does not name it."""


class ClaimRow(Answer):
    """A ResourceClaim of our DeviceClasses."""

    namespace: str
    name: str
    state: ClaimState
    requested: tuple[int, ...]
    """Number of devices of each alternative, 0: all of a node; empty where it cannot be read."""
    node: str | None
    devices: tuple[ClaimedDevice, ...]
    pods: tuple[str, ...]
    """The pod that it was made for, or those that it is reserved for."""
    created: datetime | None


class ClaimReport(Answer):
    """All ResourceClaims of our DeviceClasses."""

    claims: tuple[ClaimRow, ...]
    has_planner: bool | None
    """Whether an extender plans the queue, perhaps without `dra.enabled`; `None`: not known, or no claim waits."""


def list_claims(source: StateSource, form: Form, namespace: Namespace = None, everywhere: Everywhere = False) -> None:
    """List ResourceClaims of gputopo and their pods. Exit 1 if some wait and nobody plans."""
    place = source.place
    if not isinstance(place, Kubeconfig):
        fail(f"{source.snapshot_file} does not hold ResourceClaims that wait, as no snapshot does: ask a cluster")
    claims, state = ask(_read(place, None if everywhere else namespace or place.namespace))
    rows = tuple(_row(counted, state, source.now) for counted in sorted(claims, key=lambda counted: counted[0].name))
    planners = source.control_plane() if any(row.state == "waiting" for row in rows) else None
    has_planner = bool(planners.at_work) if planners and planners.planners is not None else None
    _print(ClaimReport(claims=rows, has_planner=has_planner), form)
    if has_planner is False:
        raise typer.Exit(1)


async def _read(place: Kubeconfig, namespace: str | None) -> tuple[list[_Counted], ClusterState]:
    """Return the claims of our classes; and the nodes and devices, where a claim holds any."""
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    root, _, plural = CLAIMS_PATH.rpartition("/")
    state, requested = ClusterState(), dict[str, tuple[int, ...]]()

    def kept(claim: ResourceClaim) -> ResourceClaim | None:
        if (counts := _requested(claim)) is None:
            return None
        requested[claim.metadata.uid] = counts
        # The rest may be large, and is not shown.
        return replace(claim, metadata=replace(claim.metadata, labels=None, annotations=None), spec=ClaimSpec())

    async with KubeApi.from_kubeconfig(place.files, place.context) as api:
        try:
            claims = await list_objects(api.resource(f"{root}{within}/{plural}"), decoder(ResourceClaim), kept)
            if any(claim.held for claim in claims.objects):
                published = api.resource(SLICES_PATH, field_selector=SLICES_SELECTOR)
                state.claims.slices.replaced((await list_objects(published, decoder(ResourceSlice))).objects)
                state.nodes.replaced((await list_objects(api.resource("/api/v1/nodes"), decoder(Node))).objects)
        except Unavailable as error:
            if error.denied or error.missing:
                fail(_NO_RIGHT if error.denied else _NO_CLAIMS)
            raise
    PodFeed(state).replaced([])  # views exist once pods have been listed
    return [(claim, requested[claim.metadata.uid]) for claim in claims.objects], state


def _requested(claim: ResourceClaim) -> tuple[int, ...] | None:
    """Return the number of devices of each alternative, 0: all of a node; `None`: the claim is of another class."""
    from extender.features.dra.claim_spec import RefusedField
    from extender.features.dra.requests import is_ours, read_devices  # 5 ms, for this verb alone

    if not is_ours(claim):
        return None
    try:
        requests = read_devices(claim).requests or []
    except RefusedField:
        return ()
    if len(requests) == 1 and (ways := requests[0].first_available):
        return tuple(way.count for way in ways)
    counts = [request.exactly.count for request in requests if request.exactly]
    return (sum(counts) if all(counts) else 0,) if len(counts) == len(requests) else ()


def _row(counted: _Counted, state: ClusterState, now: Instant) -> ClaimRow:
    claim, requested = counted
    metadata, consumers, owner = claim.metadata, claim.status.reserved_for or (), claim.metadata.controller
    made_for = [owner.name] if owner and owner.kind == "Pod" else []
    reserved = (consumer.name for consumer in consumers if consumer.resource == "pods")
    seconds = now.age_seconds(metadata.creation_timestamp)
    return ClaimRow(
        namespace=metadata.namespace,
        name=metadata.name,
        state=state_of(claim),
        requested=requested,
        node=claim.node,
        devices=tuple(_devices(claim, state)),
        pods=tuple(dict.fromkeys((*made_for, *reserved))),
        created=datetime.fromtimestamp(now.wall - seconds, UTC) if metadata.creation_timestamp else None,
    )


def state_of(claim: ResourceClaim) -> ClaimState:
    """Return the state of a claim; one that is being deleted holds its devices until its pod has ended."""
    if claim.metadata.deletion_timestamp is not None:
        return "deleting"
    if claim.status.allocation is None:
        return "waiting"
    return "reserved" if claim.status.reserved_for else "allocated"


def _devices(claim: ResourceClaim, state: ClusterState) -> Iterator[ClaimedDevice]:
    view = state.views.get(claim.node or "")
    topology = view.shape.topology_class if view else None
    index_of = dict(zip(view.devices, topology.node.indexes, strict=True)) if view and topology else {}
    for result in claim.held:
        uuid = state.claims.slices.gpu(claim.node or result.pool, result.pool, result.device)
        yield ClaimedDevice(name=result.device, uuid=uuid, index=index_of.get(uuid or ""))


def _print(report: ClaimReport, form: Form) -> None:
    """Print a row for each claim."""
    if form.document(report, (f"resourceclaim/{claim.name}" for claim in report.claims)):
        return
    if report.has_planner is False:
        say(_NOBODY_PLANS, to=sys.stderr)
    heads = ("NAMESPACE", "NAME", "STATE", "REQUESTS", "NODE", "GPUS", "POD", "CREATED")
    form.table(heads, map(_cells, report.claims), empty=f"no ResourceClaim of {OUR_CLASS} or {MIG_CLASS}")


def _cells(claim: ClaimRow) -> Sequence[str]:
    requests = "/".join(str(count or "all") for count in claim.requested)
    gpus = ",".join(device.name if device.index is None else str(device.index) for device in claim.devices)
    pods = ",".join(claim.pods[:_FEW]) + (",…" if len(claim.pods) > _FEW else "")
    return claim.namespace, claim.name, claim.state, requests, claim.node or "", gpus, pods, written(claim.created)
