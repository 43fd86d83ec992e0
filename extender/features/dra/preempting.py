"""Decides how a preemption goes on: what is held for it, who is still to be evicted, and when it has come to an end. No I/O.

What is held stands in memory, yields to no pod, and expires. Devices are allocated by the queue's plan, once the watch shows
that the victims' claims hold them no longer. So a planner that dies leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from extender.cluster.objects.constraints import may_go
from extender.cluster.objects.gpu_pods import GpuPod, may_preempt, owner_of, priority_of
from extender.cluster.state import ClusterState
from extender.features.dra.demands import Demands
from extender.features.dra.victims import MOST_GRACE_SECONDS, DeviceVictims, consumers_of, grace_left_seconds
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Instant
from extender.kit.fair_table import FairTable
from extender.planning.units import Assignment, PendingPod, Unit
from extender.verbs.pod_context import PodContext
from topology.effort import Search
from topology.errors import RequestError

MARGIN_SECONDS: Final = 60.0
"""After the longest grace period of those that end."""
GRACE_SECONDS: Final = 30.0
"""Of a pod that says nothing else."""
MOST_OF_NAMESPACE: Final = 128
"""Pods of one namespace for which others end at one time; its last gang may exceed that."""
MOST_MEMBERS: Final = 64
"""Of a gang that preempts."""
LOOKED_AT: Final = 20_000
"""Pods of the queue that have no room: most of them take microseconds, and those of one namespace may all come first."""
AT_ONCE: Final = 64
"""Of these, in one step."""
NAMESPACES: Final = 1000
PAUSE: Final = Pauses(5.0, 120.0)
"""Between two searches in vain for pods of one owner."""
AGAIN: Final = Pauses(600.0, 21_600.0)
"""Between two preemptions for one pod: it had its place, and could not run there for a reason that is not known here."""


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
    def key(self) -> str:
        """The waiting pod's UID, or the gang's key."""
        return self.victims.unit.key

    @property
    def targets(self) -> tuple[Assignment, ...]:
        """What the waiting pods are to get."""
        return self.victims.targets

    @property
    def uids(self) -> frozenset[str]:
        """Of the waiting pods."""
        return frozenset(target.pod.metadata.uid for target in self.targets)

    @property
    def gone(self) -> tuple[str, ...]:
        """UIDs of all pods whose GPUs they get."""
        return (*self.victims.leaving, *(pod.uid for pod in self.victims.pods))

    @classmethod
    def of(cls, state: ClusterState, victims: DeviceVictims, now: Instant) -> DevicePreemption:
        """Begin one that lasts until all have had their grace periods, also those that are ending already."""
        of_victims = (pod.pod.spec.termination_grace_period_seconds for pod in victims.pods)
        whole = (GRACE_SECONDS if seconds is None else float(seconds) for seconds in of_victims)
        left = (grace_left_seconds(pod, now) for uid in victims.leaving if (pod := state.pods.get(uid)))
        longest = max((*whole, *left), default=GRACE_SECONDS)
        return cls(victims, now.monotonic + min(max(0.0, longest), MOST_GRACE_SECONDS) + MARGIN_SECONDS)


def still_to_evict(state: ClusterState, preemption: DevicePreemption) -> list[GpuPod]:
    """Return the victims that have not been asked to end, in their newest versions."""
    pods = (state.pods.get(pod.uid) for pod in preemption.victims.pods if pod.uid not in preemption.evicted)
    return [pod for pod in pods if pod is not None and pod.is_alive]


def is_unchanged(state: ClusterState, demands: Demands, preemption: DevicePreemption, unit: Unit | None) -> bool:
    """Whether the waiting pods still start with their targets and come before their victims, and these alone use their claims.

    Args:
        state: The cluster.
        demands: What pods request by claims.
        preemption: One that is under way, or is about to begin.
        unit: The waiting pod or the gang as it is now; `None`: it cannot be planned any more.

    """
    gone, nodes = {*preemption.gone}, preemption.victims.nodes
    return (
        unit is not None
        and _starts_with(state, unit, preemption)
        and all(
            pod.node in nodes and priority_of(pod.pod) < unit.priority and consumers_of(demands, pod) <= gone
            for pod in still_to_evict(state, preemption)
        )
    )


@dataclass(slots=True)
class PreemptionTurns:
    """For whom victims are searched next: one namespace after the other, and less often after each failure."""

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
        under_way: Mapping[str, Unit],
        now: Instant,
    ) -> Search[Unit | None]:
        """Return the pod or gang whose turn it is; `under_way`: those with a preemption, by key."""
        counts, first, looked_at = Counter[str](), dict[str, Unit](), set(under_way)
        for unit in under_way.values():
            counts[unit.namespace] += len(unit.members)
        for number, uid in enumerate([*islice(without_room, LOOKED_AT)]):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            pod, gang = self.state.pods.get(uid), gang_of(uid)
            key = gang.key if gang else uid
            if pod is None or key in looked_at or pod.key[0] in first or counts[pod.key[0]] >= MOST_OF_NAMESPACE:
                continue
            looked_at.add(key)
            if waiting := self._alone(pod, now) if gang is None else self._gang(gang, now):
                first[pod.key[0]] = waiting
            if gang is not None:
                yield
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
            and self.pauses.may_begin(_key(pod), now.monotonic)
            and self._places.may_begin(pod.uid, now.monotonic)
            and not self.state.claimed_on(pod.uid)
            and not self.state.holds.firm_of(pod.uid, now.monotonic)
        )

    def _gang(self, gang: Unit, now: Instant) -> Unit | None:
        """Return a gang if it may preempt; `None` where a pod of it may not, or has failed to run on a node lately."""
        members = [(self.state.pods.get(member.pod.metadata.uid), member.avoided) for member in gang.members]
        may_begin = len(members) <= MOST_MEMBERS and all(
            pod and not avoided and self._may_begin(pod, now) for pod, avoided in members
        )
        return gang if may_begin else None

    def _alone(self, pod: GpuPod, now: Instant) -> Unit | None:
        """Return a pod as the planner sees it; `None` for one in a gang, or that has failed to run on a node lately.

        kube-scheduler may know a reason that holds on all nodes: then it would preempt on one after the other.
        """
        if not self._may_begin(pod, now) or self.state.indexes.groups.has_peers(pod.uid):
            return None
        try:
            context = PodContext.read(self.state, pod.pod, now)
        except RequestError:
            return None
        is_alone = context.group is None or (context.group.size or 1) <= 1
        wanted = PendingPod(pod.pod, context.request, (), context.fallbacks, context.accepted_devices)
        return Unit.alone(wanted) if is_alone and not context.away(self.state) else None


def _starts_with(state: ClusterState, unit: Unit, preemption: DevicePreemption) -> bool:
    """Whether the targets are enough for a unit, and its pods request what they did when these were chosen."""
    size = unit.group.size if unit.group else None  # more pods than that may have come since
    members = {member.pod.metadata.uid: member for member in unit.members}
    targets = [(members.get(target.pod.metadata.uid), target) for target in preemption.targets]
    return (
        unit.group == preemption.victims.unit.group
        and min(unit.needed, size or unit.needed) <= len(targets)
        and all(
            member and member.request == target.request and _may_go(state, member, target.node)
            for member, target in targets
        )
    )


def _may_go(state: ClusterState, member: PendingPod, node: str) -> bool:
    """Whether labels and taints let a pod go to a node, which does not step back from it: selectors may become narrower."""
    view = state.views.get(node)
    return view is not None and node not in member.avoided and may_go(member.pod, view.node)


def _key(pod: GpuPod) -> str:
    return owner_of(pod.pod) or pod.uid
