"""Writes the allocations of a pod's claims once its GPUs stand in the ledger, and takes them back. Sans I/O.

First the ledger names the GPUs. Then the finalizer is written, so that the claim stays while its pod runs. The pod is read live,
and the allocation follows in the version of the claim that was known before. The watch has to show it before the gate is opened.
Each allocation is checked just before it is written, as the API server checks almost nothing.

Any number of pods may name a claim that was made without a template. Our mark says for which one it is. The mark is written with
the finalizer, and an allocation only after the watch has shown it. It goes when the pod's plan is given up, or the pod is gone.

Why no GPU is given twice: an allocation commits only while its claim is in version V. After V was known, the pod was seen in the
version R that the ledger names. A fence or the pod's end ends R. These GPUs leave the ledger after that and then a withdrawal,
which ends V, or when the claim is deleted, which does so, too. Both orders are needed. Had R ended before that look at the pod,
it would not have been seen. So it ended after, and the withdrawal came later still: it finds the allocation, or ends V before it
commits. So it does not matter where a planner dies, how many there are, or how far a watch is behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from extender.binding.intents import (
    AllocateClaim,
    Conflict,
    Done,
    GetClaim,
    GetPodVersion,
    Gone,
    MarkClaim,
    NoAnswer,
    Refused,
    Reply,
    Step,
    in_words,
)
from extender.cluster.node_view import NodeView
from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.versions import is_before, is_same_version
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from extender.features.dra.allocation import ClaimAllocation, allocate
from extender.features.dra.caches import names_of_claims
from extender.features.dra.demands import Demands
from extender.features.dra.inventory import DeviceId, taken_by
from extender.features.dra.requests import is_ours
from extender.features.dra.taints import DeviceTaints
from extender.features.dra.validate import InvalidAllocation, validate
from extender.kit.bounded import Bounded
from extender.kit.clock import Clock
from extender.kit.plain_structlog import structlog
from topology.errors import RequestError
from topology.node.silicon import Excluded

PROTECTION: Final = "resource.kubernetes.io/delete-protection"
"""kube-scheduler's finalizer; a controller removes it when the claim is deallocated."""
PENDING: Final = 10_000
"""Claims of which the watch has not shown our last write yet, at most."""
SETTLING_SECONDS: Final = 1.0
"""From when the watch shows an allocation until the gate is opened, where no policy keeps others from the same devices."""
LONGEST_SETTLING_SECONDS: Final = 3.0
"""The same while claims of others wait that were there before: kube-scheduler may have chosen a device, and not written that."""
OTHERS_COME_SECONDS: Final = 30.0
"""Since a claim of others came: the next one may come, and get a device, between our last look and our write."""
ATTEMPTS: Final = 3
"""To take one allocation back while others write to the claim."""

_Planned: TypeAlias = list[tuple[ResourceClaim, ClaimAllocation]]
"""The claims of a pod, and what each is to get."""

log = structlog.get_logger(__name__)


class AllocationOutcome(StrEnum):
    """What became of an allocation."""

    WRITTEN = "written"
    INVALID = "invalid"
    """It was not written: it disagrees with what is known."""
    REFUSED = "refused"
    """By the API server: a right is missing, or a policy forbids it."""
    TAKEN_BACK = "taken-back"
    UNDONE = "undone"
    """By kube-scheduler: the pod cannot run there."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the watch has shown of a pod's claims."""

    versions: tuple[str, ...]
    """In which they have what is planned."""
    since: float
    """Monotonic seconds."""
    others_heard: int
    """Claims of others that had been heard of before."""


@dataclass(slots=True)
class Allocations:
    """The allocations of one extender; a `BeforeOpening`."""

    state: ClusterState
    demands: Demands
    clock: Clock
    count: Callable[[AllocationOutcome], None]
    taints: DeviceTaints | None = None
    """`None`: kube-scheduler is not kept from any device."""
    _pending: Bounded[str, str] = field(default_factory=lambda: Bounded(PENDING))
    """UID of a claim → the version that our last write has made."""
    _shown: Bounded[str, _Shown] = field(default_factory=lambda: Bounded(PENDING))
    """UID of a pod → when its claims were first seen with what is planned."""
    _others: tuple[int, float] = (0, -math.inf)
    """How many claims of others had been heard of when the last one came, and when that was, in monotonic seconds."""
    _withdrawn: Bounded[str, str] = field(default_factory=lambda: Bounded(PENDING))
    """UID of a claim → the version whose allocation we have taken back, or may have."""

    def is_done(self, pod: GpuPod, node: str) -> bool:
        """Whether the watch shows for all of the pod's claims the devices that the node's ledger names, and no other owner.

        Where others may allocate, it has to show that for a while.
        """
        if pod.claimed is None or not pod.claimed.is_allocated:
            return pod.claimed is None
        view = self.state.views.get(node)
        planned = self._planned(pod, view) if view else None
        if planned is None or self._rivals(planned):
            return False
        return all(holds(claim, allocation) for claim, allocation in planned) and self._is_settled(pod.uid, planned)

    def directs(self, pod: GpuPod) -> bool:
        """Whether allocated devices direct the pod; it could not leave a node without room if it were pinned there."""
        return pod.claimed is not None

    def do(self, pod: GpuPod, node: str) -> Step[bool]:
        """Allocate the pod's claims; returns `False` where they cannot have these devices there."""
        view = self.state.views.get(node)
        if view is None or self.demands.guard.obstacle:
            return True
        planned = self._planned(pod, view)
        if planned is None:
            self.count(AllocationOutcome.INVALID)
            return False
        if any(self._is_pending(claim) for claim, _ in planned):
            return True
        if any(claim.status.allocation and not holds(claim, allocation) for claim, allocation in planned):
            return (yield from self.take_back(*_identity(pod.pod)))
        if pod.claimed and pod.claimed.is_allocated and (rivals := self._rivals(planned)):
            log.error(
                "another ResourceClaim has a device of a planned pod", pod="/".join(pod.key), claims=sorted(rivals)
            )
            yield from self.take_back(*_identity(pod.pod))
            return False
        if {claim.resource_version for claim in view.claims_of(pod.uid)} != {pod.pod.metadata.resource_version}:
            return True
        if unmarked := [claim for claim, _ in planned if claim.pod != pod.uid]:
            return (yield from self._mark_for(pod.uid, unmarked))
        unallocated = [(claim, allocation) for claim, allocation in planned if not claim.status.allocation]
        devices = self._excluded_devices(planned) if unallocated and self.taints else []
        if unallocated and not self._are_kept(devices):
            return True
        for claim, allocation in unallocated:
            if not (yield from self._allocate(pod.pod, claim, allocation)):
                return False
        if self.taints:
            self.taints.allocated(devices)
        return True

    def take_back(self, namespace: str, uid: str) -> Step[bool]:
        """Let no claim that the watch has shown of an unbound pod hold devices, or get any in the version that it has now."""
        for claim in () if self._is_bound(uid) else self.demands.claims.of_pod_uid(namespace, uid):
            if not (yield from self._withdraw(Done(claim), uid)):
                return False
        return True

    def withdraw(self, pod: Pod) -> Step[bool]:
        """Do so with all claims that the pod names, though the watch may be behind."""
        namespace, uid = _identity(pod)
        if not (yield from self.take_back(namespace, uid)):
            return False
        for name in () if self._is_bound(uid) else names_of_claims(pod):
            if name and self._may_be_for(uid, self.demands.claims.find(namespace, name)):
                live = yield GetClaim(namespace, name)
                if not (yield from self._withdraw(live, uid)):
                    return False
        return True

    def let_go(self, claim: ResourceClaim) -> Step[bool]:
        """Let a claim without a template hold nothing, or if so be for no pod, unless it is reserved."""
        return (yield from self._withdraw(Done(claim), claim.pod))

    def was_withdrawn(self, before: ResourceClaim) -> bool:
        """Whether the deallocation of this version that the watch has just shown is ours; it may be faster than the reply."""
        return self._withdrawn.pop(before.metadata.uid) == before.metadata.resource_version

    def _mark_for(self, uid: str, claims: Sequence[ResourceClaim]) -> Step[bool]:
        """Take claims that were made without a template for one pod: all in one order, or two pods might wait for each other."""
        for claim in sorted(claims, key=lambda claim: claim.metadata.uid):
            reply = yield self._mark(claim, _protected(claim), uid)
            if not (isinstance(reply, Done) and isinstance(reply.value, ResourceClaim)):
                return self._may_go_on(claim, reply)
            self._learn(reply.value)
        return True

    def _may_be_for(self, uid: str, shown: ResourceClaim | None) -> bool:
        """Whether a claim that a pod names may be the pod's, though the watch has not shown that."""
        return shown is None or (shown.is_standalone and shown.pod != uid and is_ours(shown))

    def _is_bound(self, uid: str) -> bool:
        pod = self.state.pods.get(uid)
        return pod is not None and pod.node is not None

    def _planned(self, pod: GpuPod, view: NodeView) -> _Planned | None:
        """Return what each claim is to get; `None` where the ledger names no GPUs that these claims can have, or a sick one."""
        try:
            demand = self.demands.of(pod.pod)
        except RequestError:
            return None
        published = self.demands.inventory(view.name)
        named = {claim.gpu for claim in view.claims_of(pod.uid)}
        if not named.isdisjoint(view.sick):  # since it was planned
            return None
        gpus = [device for uuid in view.devices if uuid in named and (device := published.device(uuid))]
        devices = self.demands.alternative_on(demand, view.name, frozenset(named))
        device_class = self.demands.guard.classes.get(devices.class_name) if devices else None
        if devices is None or device_class is None or len(gpus) != len(named):
            return None
        written = datetime.fromtimestamp(self.clock().wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        planned = allocate(devices, demand.claims, device_class, view.name, gpus, written)
        return [*zip(demand.claims, planned, strict=True)]

    def _rivals(self, planned: _Planned) -> set[str]:
        """Return the other claims that have any of these devices, what excludes one, or a device that may be.

        Before the watch shows our allocation, it has shown all that were written before. So of two, one is seen here.
        """
        node, excluded = self._excluded(planned)
        devices = self.state.claims.on(node, parts=self.demands.inventory(node).parts)
        own = {claim.name for claim, _ in planned}
        holders = {claim for held, claims in devices.held.items() if held in excluded for claim in claims}
        return (holders | {claim for claim, _ in devices.unmatched}) - own

    def _is_settled(self, uid: str, planned: _Planned) -> bool:
        """Whether nobody allocates these devices any more who has not seen that they are taken.

        kube-scheduler hears of a claim that is made after our allocation when it has heard of that. So only those from before
        count, until they have an allocation themselves, which is a rival then.
        """
        versions, now = tuple(claim.metadata.resource_version for claim, _ in planned), self.clock().monotonic
        claims, shown = self.demands.claims, self._shown.get(uid)
        if shown is None or shown.versions != versions:
            shown = _Shown(versions, now, claims.others_heard)
            self._shown.put(uid, shown)
        least = 0.0 if self.demands.guard.policy_in_force else SETTLING_SECONDS
        seconds = LONGEST_SETTLING_SECONDS if claims.others_wait_since(shown.others_heard) else least
        return now - shown.since >= seconds

    def _are_kept(self, devices: Sequence[DeviceId]) -> bool:
        """Whether kube-scheduler has been kept from these devices for a while, where it may choose some and can be kept."""
        taints = self.taints
        if taints is None or not taints.are_served or not self._may_have_rivals():
            return True
        return taints.keep(devices) >= SETTLING_SECONDS

    def _may_have_rivals(self) -> bool:
        """Whether kube-scheduler may choose devices: there is no policy, or claims of others wait, or came lately."""
        claims, now = self.demands.claims, self.clock().monotonic
        if claims.others_heard != self._others[0]:
            self._others = claims.others_heard, now
        came_lately = now - self._others[1] < OTHERS_COME_SECONDS
        return came_lately or not self.demands.guard.policy_in_force or claims.others_wait_since(claims.others_heard)

    def _excluded(self, planned: _Planned) -> tuple[str, Excluded]:
        """Return the node, and what nobody else may have there while these claims have their devices."""
        node = planned[0][1].node
        uuids = {gpu.uuid for _, allocation in planned for _, gpu in allocation.gpus}
        return node, self.state.views[node].silicon.excluded_by(uuids)

    def _excluded_devices(self, planned: _Planned) -> list[DeviceId]:
        """Return the published devices among these."""
        node, excluded = self._excluded(planned)
        inventory = self.demands.inventory(node)
        published = (*inventory.gpus.items(), *inventory.mig_devices.items())
        return [device.id for uuid, device in published if uuid in excluded]

    def _allocate(self, pod: Pod, claim: ResourceClaim, allocation: ClaimAllocation) -> Step[bool]:
        demands, node = self.demands, allocation.node
        slices, classes = demands.slices.on(node), demands.guard.classes
        pools = {item.spec.pool.name for item in slices}
        others = [item for item in demands.claims.holding(pools) if item.metadata.uid != claim.metadata.uid]
        uuids, taken = [gpu.uuid for _, gpu in allocation.gpus], self._planned_for_others(pod, node) | taken_by(others)
        try:
            validate(allocation.status, claim, classes, node, slices, taken, uuids, demands.selectors)
        except InvalidAllocation as invalid:
            log.warning("an allocation is not written", node=node, why=str(invalid))
            self.count(AllocationOutcome.INVALID)
            return False
        metadata = claim.metadata
        if PROTECTION not in (metadata.finalizers or ()):
            reply = yield self._mark(claim, _protected(claim))
            if not (isinstance(reply, Done) and isinstance(reply.value, ResourceClaim)):
                return self._may_go_on(claim, reply)
            self._learn(reply.value)
            metadata = reply.value.metadata
        reply = yield GetPodVersion(pod.metadata.namespace, pod.metadata.name)
        if not (isinstance(reply, Done) and isinstance(reply.value, Pod)):
            return not isinstance(reply, Gone)
        if not is_same_version(reply.value.metadata, pod.metadata):
            return True
        reply = yield AllocateClaim(
            metadata.namespace, metadata.name, metadata.uid, metadata.resource_version, allocation.status
        )
        if isinstance(reply, Done) and isinstance(reply.value, ResourceClaim):
            self._learn(reply.value)
            self.count(AllocationOutcome.WRITTEN)
            return True
        return self._may_go_on(claim, reply)

    def _planned_for_others(self, pod: Pod, node: str) -> dict[DeviceId, str]:
        """Return the devices that the ledger names for other pods, whether a claim holds them yet or not."""
        view, inventory = self.state.views[node], self.demands.inventory(node)
        claims = (claim for claim, standing in view.claims if standing is not Standing.FREE)
        named = ((inventory.device(claim.gpu), claim) for claim in claims if claim.uid != pod.metadata.uid)
        return {device.id: f"of {claim.namespace}/{claim.name}" for device, claim in named if device}

    def _may_go_on(self, claim: ResourceClaim, reply: Reply) -> bool:
        """Whether another attempt may succeed: the watch tells what has changed."""
        self._log_refusal(claim, reply)
        return not isinstance(reply, Refused | Gone)

    def _log_refusal(self, claim: ResourceClaim, reply: Reply) -> None:
        if isinstance(reply, Refused):
            log.warning("a write to a ResourceClaim is refused", claim=claim.name, why=refusal_in_words(reply))
            self.count(AllocationOutcome.REFUSED)

    def _withdraw(self, reply: Reply, pod: str) -> Step[bool]:
        """Let a claim as it was read hold nothing and leave its version, if it is the pod's."""
        for _ in range(ATTEMPTS):
            if not (isinstance(reply, Done) and isinstance(reply.value, ResourceClaim)):
                return isinstance(reply, Gone)
            claim = reply.value
            if not is_ours(claim) or claim.pod != pod:
                return True
            if consumers := claim.status.reserved_for:
                # Others may use a claim that somebody wrote this pod on: it has devices, so none are on their way for the pod.
                return all(consumer.uid != pod for consumer in consumers)
            reply = yield from self._deallocate(claim)
            if not isinstance(reply, Conflict):
                self._log_refusal(claim, reply)
                return isinstance(reply, Done | Gone)
            reply = yield GetClaim(claim.metadata.namespace, claim.metadata.name)
        return False

    def _deallocate(self, claim: ResourceClaim) -> Step[Reply]:
        """Take an allocation back, or write anything where there is none."""
        metadata, had_devices = claim.metadata, claim.status.allocation is not None
        if had_devices:
            self._withdrawn.put(metadata.uid, metadata.resource_version)
            reply: Reply = yield AllocateClaim(
                metadata.namespace, metadata.name, metadata.uid, metadata.resource_version, None
            )
        else:
            reply = yield self._mark(claim, metadata.finalizers or (), "" if claim.is_standalone else None)
        if isinstance(reply, Done) and isinstance(reply.value, ResourceClaim):
            self._learn(reply.value)
            if had_devices:
                self.count(AllocationOutcome.TAKEN_BACK)
        elif not isinstance(reply, NoAnswer):
            self._withdrawn.pop(metadata.uid)
        return reply

    def _mark(self, claim: ResourceClaim, finalizers: Sequence[str], pod: str | None = None) -> MarkClaim:
        metadata = claim.metadata
        version = metadata.resource_version
        return MarkClaim(metadata.namespace, metadata.name, metadata.uid, version, tuple(finalizers), pod)

    def _learn(self, written: ResourceClaim) -> None:
        self._pending.put(written.metadata.uid, written.metadata.resource_version)

    def _is_pending(self, claim: ResourceClaim) -> bool:
        """Whether the watch is still to show our last write to a claim."""
        written = self._pending.get(claim.metadata.uid)
        return written is not None and is_before(claim.metadata.resource_version, written)


def holds(claim: ResourceClaim, allocation: ClaimAllocation) -> bool:
    """Whether a claim has exactly these devices."""
    results = (claim.status.allocation.devices.results if claim.status.allocation else None) or ()
    given = {DeviceId(result.driver, result.pool, result.device) for result in results}
    return given == {gpu.id for _, gpu in allocation.gpus}


def _identity(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.uid


def _protected(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the finalizers of a claim with the one that keeps it while its pod runs."""
    return tuple(dict.fromkeys((*(claim.metadata.finalizers or ()), PROTECTION)))


def refusal_in_words(reply: Refused) -> str:
    """Say why a write was refused; since Kubernetes 1.36 a missing right looks like an invalid object."""
    words = in_words(reply)
    if "resourceclaims/binding" in words:
        return f"the right to patch resourceclaims/binding is missing ({words})"
    return words
