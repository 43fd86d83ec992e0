"""Nominates pods for nodes, and takes nominations back: what is written, and what is remembered of it. Sans I/O.

A nomination is advice to kube-scheduler, which tries that node first; no safety rests on one. Each write holds for one version of
its pod, and beside the field stands our mark. So a nomination that somebody else has made is never overwritten nor taken back,
whoever of several extenders made ours, and whichever has died since.

A nomination is withdrawn when the GPUs have not been held for its pod on that node for a while. Autoscalers ignore pods
that have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from extender.binding.intents import Done, Nominate, Step
from extender.cluster.candidates.holds import Hold, Ranked
from extender.cluster.objects.gpu_pods import GpuPod, owner_of
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.steering.nomination_breaker import NominationBreaker
from extender.kit.backoff import Backoff, Pauses
from extender.planning.units import Assignment

BEFORE_OWNER_PAUSES: Final = 3
"""Nominations in a row that came to nothing, of pods of one owner: one alone may have been a race that kube-scheduler won."""
GRACE_SECONDS: Final = 1.0
"""Between the end of a hold and the end of its nomination: a pod that goes elsewhere is bound by then, and loses it so."""
FIRST_PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 960.0
_OF_POD: Final = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
_OF_OWNER: Final = replace(_OF_POD, tolerated=BEFORE_OWNER_PAUSES - 1)


@dataclass(slots=True)
class _Made:
    """A nomination of ours that stands, as far as is known."""

    namespace: str
    node: str
    since: float
    good_at: float
    """When GPUs were last held there for the pod, in monotonic seconds."""
    is_own: bool
    """This process made it."""
    is_asked: bool = False
    """kube-scheduler has asked about the pod since."""


@dataclass(slots=True)
class Nominations:
    """Those of all extenders of this cluster, as one of them sees them."""

    state: ClusterState
    life_seconds: float
    """For which GPUs are held for a pod that was nominated, before kube-scheduler asks."""
    breaker: NominationBreaker = field(default_factory=NominationBreaker)
    """Of those that this process has made."""
    _made: dict[str, _Made] = field(default_factory=dict)
    _pods: Backoff = field(default_factory=lambda: Backoff(_OF_POD))
    """By UID: nominations that came to nothing."""
    _owners: Backoff = field(default_factory=lambda: Backoff(_OF_OWNER))
    """By owner: the same, of all its pods."""

    def ahead_since(self) -> list[float]:
        """Return when each was made, in monotonic seconds: of ours, those that kube-scheduler is yet to ask about."""
        return [made.since for made in self._made.values() if made.is_own and not made.is_asked]

    def asked(self, uid: str) -> None:
        """Take note that kube-scheduler has taken a pod from the queue."""
        made = self._made.get(uid)
        if made is not None:
            made.is_asked = True

    def ahead(self) -> frozenset[str]:
        """Return the pods that kube-scheduler is yet to ask about."""
        return frozenset(uid for uid, made in self._made.items() if not made.is_asked)

    def hold(self, assignment: Assignment, now: float) -> None:
        """Keep the GPUs of a assignment from others, until kube-scheduler asks for its pod or the time is over."""
        ranked = (Ranked(assignment.node, assignment.placement),)
        hold = Hold.of(assignment.node, assignment.placement, assignment.request, now + self.life_seconds, ranked)
        self.state.holds.put(assignment.pod.metadata.uid, hold)

    def nominate(self, assignment: Assignment, now: float) -> Step[bool]:
        """Write a nomination for which GPUs are held; returns whether it stands."""
        metadata, holds = assignment.pod.metadata, self.state.holds
        if holds.own(metadata.uid, assignment.node, now) != assignment.gpus:
            return False  # kube-scheduler was faster
        reply = yield _intent(assignment.pod, assignment.node)
        if isinstance(reply, Done) and isinstance(reply.value, Pod):
            self._made[metadata.uid] = _Made(metadata.namespace, assignment.node, now, now, is_own=True)
            self.state.pods.learn(reply.value)
            return True
        if holds.own(metadata.uid, assignment.node, now) == assignment.gpus:
            holds.release(metadata.uid)
        return False

    def withdraw(self, pod: GpuPod, now: float) -> Step[bool]:
        """Take back the nomination of a pod; returns whether it is, and nobody has heard of it yet."""
        reply = yield _intent(pod.pod, "")
        if not (isinstance(reply, Done) and isinstance(reply.value, Pod)):
            return False  # the watch tells of whatever has changed, and the next round tries again
        made = self._made.pop(pod.uid, None)
        self.state.pods.learn(reply.value)
        if made is None:
            return False  # the watch was faster: `ended` has counted it
        if made.is_own:
            self.breaker.ended(pod.key[0], now, came_true=False)
        self._pause(pod, now)
        return True

    def ended(self, now: float) -> Iterator[str]:
        """Yield what became of each that stands no more: `served`, `elsewhere`, or `lost` where somebody else ended it."""
        for uid, made in [*self._made.items()]:
            pod = self.state.pods.get(uid)
            if pod is not None and pod.node is None and pod.nominated_by_us == made.node:
                continue
            del self._made[uid]
            is_served = pod is None or pod.node == made.node
            if pod is not None and is_served:
                self._owners.forget(owner_of(pod.pod))
            elif pod is not None:
                self._pause(pod, now)
            if made.is_own:
                self.breaker.ended(made.namespace, now, came_true=is_served)
                yield "served" if is_served else "elsewhere" if pod and pod.node else "lost"

    def overdue(self, now: float) -> list[GpuPod]:
        """Return the pods whose nomination by us has to be taken back."""
        return [pod for pod in self.state.indexes.waiting.nominated.values() if self._is_overdue(pod, now)]

    def may_begin(self, pod: GpuPod, now: float) -> bool:
        """Whether no pause keeps the pod from being nominated: its own, or that of its owner or namespace."""
        if now < self.breaker.paused_until_in(pod.key[0]):
            return False
        return self._pods.may_begin(pod.uid, now) and self._owners.may_begin(owner_of(pod.pod), now)

    def _is_overdue(self, pod: GpuPod, now: float) -> bool:
        node = pod.nominated_by_us
        if node is None:
            return False
        made = self._made.get(pod.uid)
        if made is None or made.node != node:
            made = self._made[pod.uid] = _Made(pod.key[0], node, now, now, is_own=False)
        if self.state.holds.own(pod.uid, node, now):
            made.good_at = now
        patience = GRACE_SECONDS if made.is_own else self.life_seconds + GRACE_SECONDS
        return now - made.good_at >= patience and not self._is_being_cleared(node)

    def _is_being_cleared(self, node: str) -> bool:
        """Whether pods are leaving the node: preemption may have chosen for the pod what we had nominated it for."""
        return any(other.pod.metadata.deletion_timestamp for other in self.state.pods.bound_to(node))

    def _pause(self, pod: GpuPod, now: float) -> None:
        """Do not nominate the pod for a while that doubles each time, nor others of an owner whose pods go elsewhere."""
        self._pods.failed(pod.uid, now, pod.key[0])
        if owner := owner_of(pod.pod):
            self._owners.failed(owner, now, pod.key[0])


def _intent(pod: Pod, node: str) -> Nominate:
    metadata = pod.metadata
    return Nominate(metadata.namespace, metadata.name, metadata.uid, metadata.resource_version, node)
