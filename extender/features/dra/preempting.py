"""Decides how a preemption goes on: what is held for it, who is still to be evicted, and when it has come to an end. No I/O.

What is held stands in memory, yields to no pod, and expires. Devices are allocated by the queue's plan, once the watch shows
that the victims' claims hold them no longer. So a planner that dies leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Final

from extender.cluster.candidates.holds import Hold, Ranked
from extender.cluster.objects.gpu_pods import GpuPod, may_preempt, owner_of, priority_of
from extender.cluster.state import ClusterState
from extender.features.dra.demands import Demands
from extender.features.dra.victims import MOST_GRACE_SECONDS, DeviceVictims, consumers_of
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Instant
from extender.kit.fair_table import FairTable
from extender.planning.units import PendingPod, Unit
from extender.verbs.pod_context import PodContext
from topology.effort import Search
from topology.errors import RequestError

MARGIN_SECONDS: Final = 60.0
"""After the longest grace period of the victims."""
GRACE_SECONDS: Final = 30.0
"""Of a pod that says nothing else."""
MOST_OF_NAMESPACE: Final = 32
"""Preemptions for one namespace at one time."""
LOOKED_AT: Final = 2000
"""Pods of the queue that have no room."""
AT_ONCE: Final = 64
"""Of these, in one step."""
NAMESPACES: Final = 1000
PAUSE: Final = Pauses(5.0, 120.0)
"""Between two searches in vain for pods of one owner."""
AGAIN: Final = Pauses(600.0, 21_600.0)
"""Between two preemptions for one pod: it had its place, and could not run there for a reason that is not known here."""


class PreemptionEnd(StrEnum):
    """What became of a preemption."""

    SERVED = "served"
    """The waiting pod has its place."""
    ELSEWHERE = "elsewhere"
    """It has another one."""
    GONE = "gone"
    DEADLINE = "deadline"
    """The victims have not ended in time."""
    CHANGED = "changed"
    """The waiting pod, its place or a victim is not what it was."""
    REFUSED = "refused"
    """A victim may not be evicted: a budget, a policy or a missing right."""
    STOOD_BY = "stood-by"
    """Another replica plans now."""


@dataclass(slots=True)
class DevicePreemption:
    """One that is under way."""

    victims: DeviceVictims
    deadline: float
    """Monotonic seconds."""
    evicted: set[str] = field(default_factory=set)
    """UIDs of the victims whose eviction was granted."""
    not_before: float = 0.0
    """When the next eviction may be tried, in monotonic seconds."""

    @property
    def uid(self) -> str:
        """The waiting pod's."""
        return self.victims.target.pod.metadata.uid

    @property
    def node(self) -> str:
        """Where it is to go."""
        return self.victims.target.node

    @property
    def gone(self) -> tuple[str, ...]:
        """UIDs of all pods whose GPUs it gets."""
        return (*self.victims.leaving, *(pod.uid for pod in self.victims.pods))

    @classmethod
    def of(cls, victims: DeviceVictims, now: float) -> DevicePreemption:
        """Begin one."""
        grace = (pod.pod.spec.termination_grace_period_seconds for pod in victims.pods)
        longest = max(
            (GRACE_SECONDS if seconds is None else float(seconds) for seconds in grace), default=GRACE_SECONDS
        )
        return cls(victims, now + min(longest, MOST_GRACE_SECONDS) + MARGIN_SECONDS)


def reserve(state: ClusterState, preemption: DevicePreemption) -> None:
    """Hold the GPUs for the waiting pod while they are freed."""
    target = preemption.victims.target
    ranked = (Ranked(target.node, target.placement),)
    hold = Hold.of(target.node, target.placement, target.request, preemption.deadline, ranked)
    state.holds.put(preemption.uid, replace(hold, is_firm=True))


def withdraw(state: ClusterState, preemption: DevicePreemption, end: PreemptionEnd, now: float) -> None:
    """Hold nothing more for one that has ended without its place."""
    if end is not PreemptionEnd.SERVED and _has_target(state, preemption, now):
        state.holds.release(preemption.uid)


def fate(state: ClusterState, preemption: DevicePreemption, now: float) -> PreemptionEnd | None:
    """Return what became of a preemption, `None` while it goes on."""
    pod = state.pods.get(preemption.uid)
    if pod is None or not pod.is_alive:
        return PreemptionEnd.GONE
    if places := {pod.node or pod.directed_to} - {None} or {*state.claimed_on(pod.uid)}:
        return PreemptionEnd.SERVED if places == {preemption.node} else PreemptionEnd.ELSEWHERE
    if now >= preemption.deadline:
        return PreemptionEnd.DEADLINE
    return None if pod.awaits_plan and _has_target(state, preemption, now) else PreemptionEnd.CHANGED


def still_to_evict(state: ClusterState, preemption: DevicePreemption) -> list[GpuPod]:
    """Return the victims that have not been asked to end, in their newest versions."""
    pods = (state.pods.get(pod.uid) for pod in preemption.victims.pods if pod.uid not in preemption.evicted)
    return [pod for pod in pods if pod is not None and pod.is_alive]


def is_unchanged(state: ClusterState, demands: Demands, preemption: DevicePreemption, now: Instant) -> bool:
    """Whether the waiting pod requests what it did and comes before its victims, and they alone use their claims."""
    waiting, gone = state.pods.get(preemption.uid), {*preemption.gone}
    if waiting is None or not waiting.awaits_plan:
        return False
    try:
        request = PodContext.read(state, waiting.pod, now).request
    except RequestError:
        return False
    return request == preemption.victims.target.request and all(
        pod.node == preemption.node
        and priority_of(pod.pod) < priority_of(waiting.pod)
        and consumers_of(demands, pod) <= gone
        for pod in still_to_evict(state, preemption)
    )


@dataclass(slots=True)
class PreemptionTurns:
    """For which waiting pod victims are searched next: one namespace after the other, and less often after each failure."""

    state: ClusterState
    pauses: Backoff = field(default_factory=lambda: Backoff(PAUSE))
    """By owner, or by the pod's UID where it has none."""
    _places: Backoff = field(default_factory=lambda: Backoff(AGAIN))
    """By UID of a pod that has got a place by a preemption."""
    _served: FairTable[str, float] = field(default_factory=lambda: FairTable(NAMESPACES))
    """Namespace → when its last turn was, in monotonic seconds."""

    def next_waiting(
        self,
        without_room: Iterable[str],
        gang_of: Callable[[str], Unit | None],
        under_way: Mapping[str, str],
        now: Instant,
    ) -> Search[PendingPod | None]:
        """Return the pod whose turn it is; `under_way`: UID → namespace of those with a preemption."""
        counts, first = Counter(under_way.values()), dict[str, PendingPod]()
        for number, uid in enumerate([*islice(without_room, LOOKED_AT)]):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            pod = self.state.pods.get(uid)
            if pod is None or uid in under_way or pod.key[0] in first or counts[pod.key[0]] >= MOST_OF_NAMESPACE:
                continue
            if gang_of(uid) is None and self._may_begin(pod, now) and (wanted := self._read(pod, now)):
                first[pod.key[0]] = wanted
        if not first:
            return None
        namespace = min(first, key=lambda name: self._served.get(name) or 0.0)
        self._served.put(namespace, namespace, now.monotonic)
        return first[namespace]

    def in_vain(self, uid: str, now: float) -> None:
        """Let others come first for a while."""
        if pod := self.state.pods.get(uid):
            self.pauses.failed(_key(pod), now, pod.key[0])

    def got_place(self, uid: str, now: float) -> None:
        """Let no other pods end for one that has got its place, for long: it needs none unless it cannot run there."""
        if pod := self.state.pods.get(uid):
            self._places.failed(uid, now, pod.key[0])

    def _may_begin(self, pod: GpuPod, now: Instant) -> bool:
        return (
            pod.claimed is not None
            and not pod.claimed.is_allocated
            and pod.awaits_plan
            and may_preempt(pod.pod)
            and not self.state.indexes.groups.has_peers(pod.uid)
            and self.pauses.may_begin(_key(pod), now.monotonic)
            and self._places.may_begin(pod.uid, now.monotonic)
            and not self.state.claimed_on(pod.uid)
            and not self.state.holds.firm_of(pod.uid, now.monotonic)
        )

    def _read(self, pod: GpuPod, now: Instant) -> PendingPod | None:
        """Return a pod as the planner sees it; `None` for one in a gang, or that has failed to run on a node lately.

        kube-scheduler may know a reason that holds on all nodes: then it would preempt on one after the other.
        """
        try:
            context = PodContext.read(self.state, pod.pod, now)
        except RequestError:
            return None
        is_alone = context.group is None or (context.group.size or 1) <= 1
        wanted = PendingPod(pod.pod, context.request, (), context.fallbacks, context.accepted_devices)
        return wanted if is_alone and not context.away(self.state) else None


def _has_target(state: ClusterState, preemption: DevicePreemption, now: float) -> bool:
    return state.holds.own(preemption.uid, preemption.node, now) == preemption.victims.target.gpus


def _key(pod: GpuPod) -> str:
    return owner_of(pod.pod) or pod.uid
