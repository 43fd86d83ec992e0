"""What pods request by claims of our class, as the caches show it now. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.cluster.node_view import NodeView
from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.gpu_pods import ClaimedRequest, GpuPod, read_request
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.dra.caches import ClaimCache, SliceCache
from extender.features.dra.claim_spec import DeviceClass
from extender.features.dra.eligibility import suitable_sets
from extender.features.dra.guard import DraGuard
from extender.features.dra.inventory import NodeInventory
from extender.features.dra.pods_by_claim import as_gpu_pod
from extender.features.dra.requests import DeviceDemand, is_ours, read_demands
from extender.features.dra.selectors import Selectors
from extender.kit.fair_table import FairTable
from topology.annotations import keys
from topology.effort import Search, finish
from topology.errors import RequestError
from topology.node.slices import as_asked
from topology.request.gpu_request import AcceptedDevices, GpuRequest, PodRequest

DEMANDS_KEPT: Final = 10_000
"""Of pods."""
NAMING_LOOKED_AT: Final = 256
"""Of the pods that name one claim without a template: so many can use it."""
SETS_KEPT: Final = 16_384
"""Of nodes and different selectors."""
STEPS: Final = 500_000
"""For the selectors of one namespace until the next `renew_allowances`: a quarter of a second.

Nodes that are not compared by then fit none of its pods until then.
"""
_LEAST_STEPS: Final = 20
"""Counted for a look that takes fewer, so that looks without progress use up the allowance, too."""
GONE: Final = "its ResourceClaims are gone"
_HAS: Final = "the pod {} has it until that pod is deleted; with a ResourceClaimTemplate each pod has its own"
"""Also where that pod has ended: what a pod waits for is written once."""
_COMES_FIRST: Final = "the pod {}, which names it, too, comes first"


_Versions = tuple[Mapping[str, DeviceClass], tuple[tuple[str, str], ...]]
"""Of our classes, and UID and version of each claim of a pod."""
_Suited = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""A node, and profile, selectors and attributes of a pod."""
Sets = tuple[frozenset[str], ...]
"""Of UUIDs; all GPUs of a pod come from one."""


@dataclass(frozen=True, slots=True)
class ClaimedDemand:
    """What one pod requests of our class."""

    claims: tuple[ResourceClaim, ...]
    """Its claims of our class, in its order."""
    alternatives: tuple[DeviceDemand, ...]
    """What it accepts, in order."""


@dataclass(slots=True)
class Demands:
    """Reads the claims of pods."""

    state: ClusterState
    guard: DraGuard
    claims: ClaimCache
    slices: SliceCache
    selectors: Selectors = field(default_factory=Selectors)
    behind: FairTable[str, str] = field(default_factory=lambda: FairTable(DEMANDS_KEPT))
    """UID of a claim without a template → UID of the pod that comes first of those that name it."""
    _devices: FairTable[str, tuple[_Versions, tuple[DeviceDemand, ...]]] = field(
        default_factory=lambda: FairTable(DEMANDS_KEPT)
    )
    """UID of a pod → what its claims request in these versions."""
    _sets: FairTable[_Suited, tuple[NodeInventory, Sets]] = field(default_factory=lambda: FairTable(SETS_KEPT))
    """Of which GPUs of a node such a pod can have its own, by what is published there."""
    _steps: Counter[str] = field(default_factory=Counter)
    """Namespace → the steps that the selectors of its pods have taken."""

    def read(self, pod: Pod) -> ClaimedRequest | None:
        """Return what the pod requests of our class; `None`: nothing, or some of its claims do not exist yet."""
        claims = self.claims.of_pod(pod)
        if claims is None:
            return ClaimedRequest(None, GONE, is_allocated=True) if _was_planned(pod) else None
        ours = [claim for claim in claims if is_ours(claim)]
        if not ours:
            return None
        is_allocated = all(claim.status.allocation for claim in ours)
        try:
            request = self._request(pod, self._demand(pod, ours))
            for claim in ours:
                self._check_turn(pod, claim)
        except RequestError as error:
            return ClaimedRequest(None, str(error), is_allocated=is_allocated)
        refusal = "" if is_allocated else self.guard.obstacle or ""
        if refusal:
            return ClaimedRequest(None, f"nothing is allocated now: {refusal}", is_allocated=is_allocated)
        allocated = sum(len(claim.held) for claim in ours) if is_allocated else 0
        return ClaimedRequest(request, is_allocated=is_allocated, allocated=allocated)

    def of(self, pod: Pod) -> ClaimedDemand:
        """Return what the pod requests; raises `RequestError`."""
        return self._demand(pod, [claim for claim in self.claims.of_pod(pod) or () if is_ours(claim)])

    def alternative_on(self, demand: ClaimedDemand, node: str, uuids: frozenset[str]) -> DeviceDemand | None:
        """Return the first alternative that has exactly these GPUs of a node; `None`: none has so many."""
        possible = [devices for devices in demand.alternatives if devices.gpus == len(uuids)]
        namespace = demand.claims[0].metadata.namespace
        suited = (
            devices
            for devices in possible
            if len(possible) == 1 or any(uuids <= suitable for suitable in self._sets_of(devices, node, namespace))
        )
        return next(suited, possible[0] if possible else None)

    def freed(self) -> list[tuple[str, str]]:
        """Return namespaces and names of claims whose first pod is no longer to be planned, once for each such pod."""
        uids = [uid for uid in self.behind if self._comes_first(self.behind.get(uid) or "") is None]
        for uid in uids:
            self.behind.pop(uid)
        return [(claim.metadata.namespace, claim.metadata.name) for uid in uids if (claim := self.claims.get(uid))]

    def pods_naming(self, namespace: str, name: str) -> Generator[None, None, list[str]]:
        """Return the UIDs of the pods that name a claim without a template, the oldest first, in steps."""
        aged = list[tuple[str, str]]()
        for uid in self.state.claimed.naming(namespace, name):
            if pod := self.state.claimed.get(uid):
                aged.append((pod.metadata.creation_timestamp or "", uid))
            yield
        return [uid for _, uid in sorted(aged)]

    def inventory(self, node: str) -> NodeInventory:
        """Return what the node's driver publishes, whoever holds it."""
        return self.slices.inventory(node)

    def fits(self, uid: str, node: str, alternative: int) -> bool | None:
        """Whether every free GPU of a node suits one alternative of a pod, or every free MIG device of its profile.

        The planner chooses among them by links and places alone.

        `None`: to find out takes longer than a call may.
        """
        view = self.state.views.get(node)
        return True if view is None else self.fits_on(uid, view, view.shape.free, alternative)

    def fits_on(self, uid: str, view: NodeView, free: int, alternative: int) -> bool | None:
        """Return the same as if these GPUs of the node were free, as a mask over positions."""
        pod, node = self.state.pods.get(uid), view.name
        if pod is None or pod.claimed is None:
            return True
        try:
            devices = self.of(pod.pod).alternatives[alternative]
        except (RequestError, IndexError):
            return False
        wanted = free & view.shape.devices_for(
            GpuRequest(devices.gpus, profile=as_asked(devices.profile), by_claim=True)
        )
        uuids_free = {uuid for position, uuid in enumerate(view.devices) if wanted >> position & 1}
        sets = self._kept_sets(devices, node)
        if sets is None:
            if self._steps[pod.key[0]] >= STEPS:
                return False
            sets = self._look_for_sets(devices, node, pod.key[0])
        return None if sets is None else any(uuids_free <= uuids for uuids in sets)

    def renew_allowances(self) -> None:
        """Let the selectors of all namespaces be evaluated again."""
        self._steps.clear()

    def _sets_of(self, devices: DeviceDemand, node: str, namespace: str) -> Sets:
        kept = self._kept_sets(devices, node)
        return finish(self._new_sets(devices, node, namespace)) if kept is None else kept

    def _kept_sets(self, devices: DeviceDemand, node: str) -> Sets | None:
        kept = self._sets.get(_suited(node, devices))
        return kept[1] if kept and kept[0] is self.inventory(node) else None

    def _new_sets(self, devices: DeviceDemand, node: str, namespace: str) -> Search[Sets]:
        inventory = self.inventory(node)
        sets = yield from suitable_sets(devices, inventory, self.selectors, namespace)
        self._sets.put(_suited(node, devices), namespace, (inventory, sets))
        return sets

    def _look_for_sets(self, devices: DeviceDemand, node: str, namespace: str) -> Sets | None:
        """Return the sets, `None` where that takes longer than a call may. Answers are kept, so the next look gets further."""
        meter = self.selectors.meter
        before = meter.steps
        self.state.effort.spend(self._new_sets(devices, node, namespace), meter)
        self._steps[namespace] += max(_LEAST_STEPS, meter.steps - before)
        return self._kept_sets(devices, node)

    def _demand(self, pod: Pod, ours: Sequence[ResourceClaim]) -> ClaimedDemand:
        if not ours:
            raise RequestError("spec.resourceClaims", GONE)
        for claim in ours:
            if reason := self._why_not(claim, pod):
                raise RequestError(f"ResourceClaim {claim.name}", reason)
        return ClaimedDemand(tuple(ours), self._devices_of(pod, ours))

    def _why_not(self, claim: ResourceClaim, pod: Pod) -> str:
        """Return why a claim cannot be allocated for a pod that names it, whatever it requests; empty: it can."""
        if claim.pod == pod.metadata.uid:
            return ""
        if not claim.is_standalone:
            return "it was made from a template for another pod"
        if claim.pod:
            holder = self.state.pods.get(claim.pod)
            name = holder.key[1] if holder and holder.key[0] == pod.metadata.namespace else claim.pod
            return _HAS.format(name)
        return "its devices were not allocated by gputopo" if claim.status.allocation else ""

    def _check_turn(self, pod: Pod, claim: ResourceClaim) -> None:
        """Raise `RequestError` for a claim that another pod names and is to have; of two that are planned one would lose.

        A bound pod keeps it as long as it exists. A controller would reserve our allocation for it, and free the devices where
        the pod has ended.
        """
        if claim.pod:
            return
        for uid in self.state.claimed.naming(claim.metadata.namespace, claim.metadata.name, NAMING_LOOKED_AT):
            if uid != pod.metadata.uid and (first := self._comes_first(uid)):
                self.behind.put(claim.metadata.uid, claim.metadata.namespace, uid)
                why = _COMES_FIRST if first.node is None else _HAS
                raise RequestError(f"ResourceClaim {claim.name}", why.format(first.key[1]))

    def _comes_first(self, uid: str) -> GpuPod | None:
        """Return a pod that is bound, or that waits and can be planned by its claims, by its UID."""
        pod = self.state.pods.get(uid)
        if pod is None or pod.node is not None:
            return pod
        is_readable = pod.claimed is not None and pod.claimed.request is not None
        return pod if pod.is_alive and is_readable else None

    def _request(self, pod: Pod, demand: ClaimedDemand) -> PodRequest:
        """Return what the planner is to look for, with the alternatives."""
        resource, words = self.state.resource, self.state.indexes.groups.words
        read = [
            read_request(as_gpu_pod(pod, demand.claims, devices, resource), resource, words)
            for devices in demand.alternatives
        ]
        first, *others = (
            replace(item, request=replace(item.request, by_claim=True, alternative=at)) for at, item in enumerate(read)
        )
        accepted = tuple(
            AcceptedDevices(devices.selectors, devices.match_attributes) for devices in demand.alternatives
        )
        return replace(first, fallbacks=tuple(others), accepted_devices=accepted)

    def _devices_of(self, pod: Pod, ours: Sequence[ResourceClaim]) -> tuple[DeviceDemand, ...]:
        classes = dict(self.guard.classes)
        versions = classes, tuple((claim.metadata.uid, claim.metadata.resource_version) for claim in ours)
        kept = self._devices.get(pod.metadata.uid)
        if kept is None or kept[0] != versions:
            kept = versions, read_demands(ours, classes, self.selectors)
            self._devices.put(pod.metadata.uid, pod.metadata.namespace, kept)
        return kept[1]


def _suited(node: str, devices: DeviceDemand) -> _Suited:
    return node, devices.profile, devices.selectors, devices.match_attributes


def _was_planned(pod: Pod) -> bool:
    """Whether ledgers may name a pod whose claims do not exist any more: those of an ended pod go before it."""
    return not {keys.PLANNED, keys.PLACEMENT}.isdisjoint(pod.metadata.annotations or ())
