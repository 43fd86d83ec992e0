"""Where a member of a PodGroup would fit without the pods of lower priority.

kube-scheduler calls no preempt verb for a PodGroup. It removes all pods of lower priority from its own snapshot and asks filter
about the members. Then it puts back the pods whose resources, by count, are not needed. Nothing in the call says so, but one
thing shows it: the call names a node that is full by count. In such a call:

- A node counts only where the victims that kube-scheduler is going to choose are enough by links, too. Else it would evict in
  vain.
- GPUs that deleted pods still have count as free. Their node comes first, or more pods would be evicted than needed.
- kube-scheduler may have heard of the end of a pod before us, and imagine nothing. Then the GPUs are not free at the bind, and
  none of the group is bound (`together`).

A tenant chooses how often its PodGroups are tried, and what they ask for. So the nodes are counted in steps, and the GPUs are
decided on for the cheapest nodes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, TypeVar

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod, has_ended, priority_of
from extender.cluster.state import ClusterState
from extender.verbs.pod_context import PodContext
from extender.verbs.victims import Candidate
from topology.effort import Allowance, Search
from topology.placement.verdict import Placement

Item = TypeVar("Item")

STEP_NODES: Final = 128
"""Counted in one step, in a millisecond or two."""
STEP_TRIES: Final = 16
"""Nodes whose GPUs are decided on in one step, in about a millisecond."""
MOST_TRIES: Final = 256
"""Of one call."""


@dataclass(frozen=True, slots=True, order=True)
class _Plan:
    """One node; the less the better."""

    priority: int
    """The highest among the victims."""
    count: int
    name: str
    victims: frozenset[str]


def place_as_if_gone(
    state: ClusterState, asked: PodContext, names: Collection[str], allowance: Allowance
) -> Search[tuple[str, Placement] | None]:
    """Return the node that costs least and what the pod gets there; `None`: nothing is imagined, or nothing helps.

    What is answered holds at the end: no step comes after the decision.

    Args:
        state: The cluster.
        asked: A member that no node takes as it is.
        names: The nodes of the call.
        allowance: What the searches of the call may take.

    """
    if asked.request.is_share or asked.request.profile:
        return None  # only whole GPUs are counted here
    kept, views = asked.kept(state), state.views
    there = (views[name] for name in asked.may_evict_together(state, names) if name in views)
    counted = yield from _in_steps(_Counted.of(state, view, asked, kept.get(view.name, NOTHING)) for view in there)
    nodes = [node for node in counted if node is not None]
    if not any(node.is_full for node in nodes):
        return None
    plans = yield from _in_steps(node.plan() for node in nodes)
    for at, plan in enumerate(nsmallest(MOST_TRIES, filter(None, plans))):
        if at % STEP_TRIES == 0:
            yield
            kept = asked.kept(state)
        if (view := state.views.get(plan.name)) is None:
            continue
        candidate = Candidate(view, asked.pod, asked.request, Counter(), ())
        victims = plan.victims | _left_behind(state, view)
        with state.effort.bounded(allowance):
            verdict = candidate.decide_without(victims, kept.get(plan.name, NOTHING))
        if isinstance(verdict, Placement):
            return plan.name, verdict
    return None


def _in_steps(items: Iterable[Item]) -> Search[list[Item]]:
    """Make all of these, so many in each step."""
    made = list[Item]()
    for item in items:
        made.append(item)
        if len(made) % STEP_NODES == 0:
            yield
    return made


@dataclass(frozen=True, slots=True)
class _Counted:
    """A node as kube-scheduler counts it."""

    name: str
    room: int
    """GPUs that are left beside the pods that stay, the group's other members and the pod itself; less than none: too few."""
    evictable: tuple[GpuPod, ...]

    @classmethod
    def of(cls, state: ClusterState, view: NodeView, asked: PodContext, kept: Held) -> _Counted | None:
        """Count a node's GPUs; `None` where nobody can."""
        offered = (view.node.status.allocatable or {}).get(state.resource, "")
        if not offered.isdecimal():
            return None
        own, evictable = priority_of(asked.pod), list[GpuPod]()
        room = int(offered) - kept.gpus.bit_count() - asked.request.gpus
        for pod in state.pods.bound_to(view.name):
            if has_ended(pod.pod):
                continue
            if pod.gpus is None:
                return None
            if pod.gpus and not pod.profile:
                if priority_of(pod.pod) < own:
                    evictable.append(pod)
                else:
                    room -= pod.gpus
        return cls(view.name, room, tuple(evictable))

    @property
    def is_full(self) -> bool:
        """Whether kube-scheduler would not have asked, had it not taken pods out."""
        return 0 <= self.room < sum(pod.gpus or 0 for pod in self.evictable)

    def plan(self) -> _Plan | None:
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
        return _Plan(highest, len(victims), self.name, frozenset(pod.uid for pod in victims))


def _left_behind(state: ClusterState, view: NodeView) -> frozenset[str]:
    """Return the UIDs of pods that are gone, and have claims of which it is not proven yet that they are dead."""
    return frozenset(uid for uid in view.taken() if isinstance(uid, str) and state.pods.get(uid) is None)
