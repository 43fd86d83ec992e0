"""Where a member of a PodGroup would fit without the pods of lower priority.

kube-scheduler calls no preempt verb for a PodGroup. It removes all pods of lower priority from its own snapshot and asks filter
about the members. Then it puts back the pods whose resources, by count, are not needed. Nothing in the call says so, but one
thing shows it: the call names a node that is full by count. In such a call:

- A node counts only where the victims that kube-scheduler is going to choose are enough by links, too. Else it would evict in
  vain.
- GPUs that deleted pods still have count as free. Their node comes first, or more pods would be evicted than needed.
- kube-scheduler may have heard of the end of a pod before us, and imagine nothing. Then the GPUs are not free at the bind, and
  none of the group is bound (`together`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod, has_ended
from extender.cluster.state import ClusterState
from extender.verbs.asked import Asked
from extender.verbs.cost import priority_of
from extender.verbs.victims import Candidate
from topology.placement.verdict import Placement


@dataclass(frozen=True, slots=True, order=True)
class _Plan:
    """One node; the less the better."""

    priority: int
    """The highest among the victims."""
    count: int
    name: str
    victims: frozenset[str]


def place_as_if_gone(
    state: ClusterState, asked: Asked, names: Collection[str], kept: Mapping[str, Held]
) -> tuple[str, Placement] | None:
    """Return the node that costs least and what the pod gets there; `None`: nothing is imagined, or nothing helps.

    Args:
        state: The cluster.
        asked: A member that no node takes as it is.
        names: The nodes of the call.
        kept: What is left to other members, by node.

    """
    if asked.request.is_share or asked.request.profile:
        return None  # only whole GPUs are counted here
    plans, is_imagined = list[_Plan](), False
    for name in asked.may_evict_together(state, names):
        view = state.views.get(name)
        counted = _Counted.of(state, view, asked, kept.get(name, NOTHING)) if view else None
        if counted is None:
            continue
        is_imagined = is_imagined or counted.is_full
        if (plan := counted.plan(name)) is not None:
            plans.append(plan)
    for plan in sorted(plans) if is_imagined else ():
        view = state.views[plan.name]
        candidate = Candidate(view, asked.pod, asked.request, Counter(), ())
        found = candidate.decide_without(plan.victims | _left_behind(state, view), kept.get(plan.name, NOTHING))
        if isinstance(found, Placement):
            return plan.name, found
    return None


@dataclass(frozen=True, slots=True)
class _Counted:
    """A node as kube-scheduler counts it."""

    room: int
    """GPUs that are left beside the pods that stay, the group's other members and the pod itself; less than none: too few."""
    evictable: tuple[GpuPod, ...]

    @classmethod
    def of(cls, state: ClusterState, view: NodeView, asked: Asked, kept: Held) -> _Counted | None:
        """Count a node's GPUs; `None` where nobody can."""
        offered = (view.node.status.allocatable or {}).get(state.resource, "")
        pods = [pod for pod in state.pods.bound_to(view.name) if not has_ended(pod.pod)]
        if not offered.isdecimal() or any(pod.gpus is None for pod in pods):
            return None
        own = priority_of(asked.pod)
        takers = [pod for pod in pods if pod.gpus and not pod.profile]
        evictable = tuple(pod for pod in takers if priority_of(pod.pod) < own)
        staying = sum(pod.gpus or 0 for pod in takers if priority_of(pod.pod) >= own)
        return cls(int(offered) - staying - kept.gpus.bit_count() - asked.request.gpus, evictable)

    @property
    def is_full(self) -> bool:
        """Whether kube-scheduler would not have asked, had it not taken pods out."""
        return 0 <= self.room < sum(pod.gpus or 0 for pod in self.evictable)

    def plan(self, name: str) -> _Plan | None:
        """Return whom kube-scheduler is going to evict: it puts back the most important ones first, as long as there is room."""
        if self.room < 0:
            return None
        room, victims = self.room, list[GpuPod]()
        for pod in sorted(
            self.evictable, key=lambda pod: (-priority_of(pod.pod), pod.pod.metadata.creation_timestamp or "")
        ):
            if (pod.gpus or 0) <= room:
                room -= pod.gpus or 0
            else:
                victims.append(pod)
        highest = max((priority_of(pod.pod) for pod in victims), default=-(2**31) - 1)
        return _Plan(highest, len(victims), name, frozenset(pod.uid for pod in victims))


def _left_behind(state: ClusterState, view: NodeView) -> frozenset[str]:
    """Return the UIDs of pods that are gone, and have claims of which it is not proven yet that they are dead."""
    return frozenset(uid for uid in view.taken() if isinstance(uid, str) and state.pods.get(uid) is None)
