"""Chooses the pods that end so that a waiting pod gets devices: kube-scheduler never preempts for devices. No I/O.

The order is that of the `preempt` verb. Budgets hold: no choice goes beyond one, as the API server would refuse the eviction.
Nodes are searched that promise the cheapest victims. All of a pod's victims are on one node. `gang_victims` has those of gangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import nsmallest
from typing import Final

from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.candidates.holds import Held
from extender.cluster.node_view import NodeView, Owner
from extender.cluster.objects.constraints import may_go
from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from extender.features.dra.demands import Demands
from extender.features.dra.requests import is_ours
from extender.kit.clock import Instant
from extender.planning.leaving import Leaving, still_fits
from extender.planning.planned_nodes import NO_DEMAND, HostDemand, PlannedNodes
from extender.planning.units import Assignment, PendingPod, Unit
from extender.verbs.cost import Protection
from extender.verbs.victims import Candidate
from topology.effort import Search
from topology.placement.verdict import Placement

OVERDUE_SECONDS: Final = 60.0
"""After the grace period of a pod that ends: its GPUs are no longer expected to be free soon."""
MOST_GRACE_SECONDS: Final = 600.0
"""Within which a pod ends whose GPUs are expected to be free soon: its owner chooses how long it may take."""
NODES_AT_ONCE: Final = 16
"""In one step: about a millisecond."""
SEARCHED: Final = 128
"""Nodes on which victims are searched at most, those first that promise the cheapest."""
ENOUGH: Final = 8
"""Nodes with victims, of which the best is taken."""


class NoVictims(StrEnum):
    """Why no pod ends for a waiting one."""

    ROOM = "there is room for it by now"
    NONE = "no pods of lower priority that may be evicted hold the GPUs that it needs"
    BUDGETS = "a PodDisruptionBudget protects pods that would have to end"
    ENDING = "pods that are ending make room"
    REFUSED = "evictions of pods that would have to end are refused"
    TOO_MANY = "too many pods would have to end"
    UNREAD = "PodDisruptionBudgets cannot be read"


@dataclass(frozen=True, slots=True)
class DeviceVictims:
    """The pods without which a waiting pod fits on their node, or a gang on their nodes."""

    unit: Unit
    """Who waits."""
    targets: tuple[Assignment, ...]
    """What the waiting pod gets, or each member of the gang."""
    pods: tuple[GpuPod, ...]
    """Empty where those that are leaving are enough."""
    leaving: tuple[str, ...] = ()
    """UIDs of pods that are ending already, and whose GPUs it needs, too."""
    rank: tuple[object, ...] = ()
    """Less is better: the cost, then the bandwidth, then the age of the victims."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where the waiting pods are to go."""
        return tuple(dict.fromkeys(target.node for target in self.targets))


@dataclass(frozen=True, slots=True)
class _Node:
    """A node where victims may help."""

    promise: tuple[int, int]
    """The highest priority among them and their number, at least."""
    view: NodeView
    leaving: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VictimSearch:
    """One search, as of one moment.

    Args:
        state: The cluster.
        demands: What pods request by claims.
        nodes: The nodes, without what is held for other pods.
        unit: The pod without room, as the planner takes it.
        now: This moment.
        refusal_of: Returns why the eviction of a pod was refused lately, by its UID; `None`: it was not.

    """

    state: ClusterState
    demands: Demands
    nodes: PlannedNodes
    unit: Unit
    now: Instant
    refusal_of: Callable[[str], NoVictims | None] = lambda _: None

    @property
    def waiting(self) -> PendingPod:
        """The pod without room."""
        return self.unit.members[0]

    def run(self) -> Search[DeviceVictims | NoVictims]:
        """Return the best victims, or why there are none."""
        if not self.state.budgets.known:
            return NoVictims.UNREAD
        if (yield from self._has_room()):
            return NoVictims.ROOM
        nodes, helpful, reasons = list[_Node](), list[DeviceVictims](), set[NoVictims]()
        for number, view in enumerate([*self.state.views.values()]):
            if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                yield
            if (
                not view.by_claim
                or view.shape.closed
                or view.name in self.waiting.avoided
                or not may_go(self.waiting.pod, view.node)
            ):
                continue
            leaving = tuple(held.pod.uid for held in view.holdings if is_leaving(held.pod, self.now))
            if leaving and (target := (yield from self._target(view, leaving, ()))):
                is_first = all(comes_before(self.state, self.unit.priority, uid) for uid in leaving)
                return DeviceVictims(self.unit, (target,), (), leaving) if is_first else NoVictims.ENDING
            if node := self._node(view, leaving):
                nodes.append(node)
        budgets = BudgetsOfPods(self.state.budgets)
        for node in nsmallest(SEARCHED, nodes, key=lambda node: (node.promise, node.view.name)):
            victims = yield from self._of(node, budgets)
            if isinstance(victims, DeviceVictims):
                helpful.append(victims)
            else:
                reasons.add(victims)
            if len(helpful) >= ENOUGH:
                break
        if helpful:
            return min(helpful, key=lambda victims: victims.rank)
        return next((why for why in (NoVictims.BUDGETS, NoVictims.REFUSED) if why in reasons), NoVictims.NONE)

    def _has_room(self) -> Search[bool]:
        """Whether the waiting pod fits somewhere as it is: the queue may have looked half a minute ago."""
        for request in self.waiting.requests:
            if (yield from self.nodes.place(self.waiting.pod, request, self.waiting.avoided)):
                return True
        return False

    def _node(self, view: NodeView, leaving: tuple[str, ...]) -> _Node | None:
        """Return a node where pods of lower priority keep enough devices from being free, by count; `None`: they keep too few.

        Whoever has a GPU keeps all MIG devices of it.
        """
        wanted, taken = view.shape.devices_for(self.waiting.request), view.taken()
        lacking = self.waiting.gpus - (view.shape.free & wanted).bit_count()
        lower = list[tuple[int, int]]()
        for held in view.holdings:
            kept = (taken[held.pod.uid] & wanted).bit_count()
            if held.pod.uid in leaving:
                lacking -= kept
            elif (priority := priority_of(held.pod.pod)) < self.unit.priority:
                lower.append((priority, -kept))
        for count, (priority, gpus) in enumerate(sorted(lower), start=1):
            lacking += gpus
            if lacking <= 0:
                return _Node((priority, count), view, leaving)
        return None

    def _of(self, node: _Node, budgets: BudgetsOfPods) -> Search[DeviceVictims | NoVictims]:
        """Return the best victims of one node."""
        waiting, spared, why = self.waiting, set[str](), NoVictims.NONE
        for held in node.view.holdings:
            if priority_of(held.pod.pod) >= self.unit.priority:
                continue
            refusal = refusal_for(held.pod, self.demands, budgets, self.refusal_of)
            why = refusal or why
            if refusal or not may_end(self.state, self.demands, held.pod, self.unit.priority):
                spared.add(held.pod.uid)
            yield
        protection = Protection(self.state.indexes.groups, budgets)
        candidate = Candidate(
            node.view, waiting.pod, waiting.request, Counter(), node.leaving, protection, frozenset(spared)
        )
        uids = yield from candidate.search()
        chosen = [self.state.pods.get(uid) for uid in uids if uid not in node.leaving]
        pods = with_consumers(self.state, self.demands, (pod for pod in chosen if pod is not None))
        if not pods or candidate.cost is None:
            return why
        if candidate.cost.violations:
            return NoVictims.BUDGETS
        target = yield from self._target(node.view, node.leaving, pods)
        if target is None:
            return NoVictims.NONE
        bandwidth = target.placement.bandwidth
        highest = max(priority_of(pod.pod) for pod in pods)
        ages = (
            self.now.age_seconds(pod.pod.metadata.creation_timestamp) for pod in pods if priority_of(pod.pod) == highest
        )
        rank = candidate.cost, -round(bandwidth.point, 1) if bandwidth else 0.0, max(ages), target.node
        return DeviceVictims(self.unit, (target,), pods, node.leaving, rank)

    def _target(self, view: NodeView, leaving: tuple[str, ...], pods: tuple[GpuPod, ...]) -> Search[Assignment | None]:
        """Return what the waiting pod gets when these are gone, `None`: it does not fit."""
        gone = {*leaving, *(pod.uid for pod in pods)}
        decision = self.nodes.decide_after(view.name, Held(freed(view, gone)), self.waiting.request)
        yield
        if not isinstance(decision, Placement):
            return None
        target = Assignment(self.waiting.pod, self.waiting.request, view.name, decision)
        return target if (yield from fits_without(self.state, self.demands, self.nodes, (target,), gone)) else None


def is_leaving(pod: GpuPod, now: Instant) -> bool:
    """Whether a pod is ending, and its GPUs are expected to be free soon."""
    is_ending = pod.pod.metadata.deletion_timestamp is not None and not pod.ended
    return is_ending and -OVERDUE_SECONDS < grace_left_seconds(pod, now) < MOST_GRACE_SECONDS


def grace_left_seconds(pod: GpuPod, now: Instant) -> float:
    """Return for how long the grace period of an ending pod lasts yet, negative where it is over; at most what counts of one."""
    later = replace(now, wall=now.wall + MOST_GRACE_SECONDS)
    return MOST_GRACE_SECONDS - later.age_seconds(pod.pod.metadata.deletion_timestamp)  # the end of the grace period


def consumers_of(demands: Demands, pod: GpuPod) -> frozenset[str]:
    """Return the UIDs of the other pods for which the claims of a pod are reserved."""
    claims = demands.claims.of_pod(pod.pod) or ()
    users = (user.uid for claim in claims if is_ours(claim) for user in claim.status.reserved_for or ())
    return frozenset(users) - {pod.uid}


def freed(view: NodeView, gone: Iterable[str], taken: Mapping[Owner, int] | None = None) -> int:
    """Return the GPUs that are free without these pods, as a mask; sick ones are not.

    Callers with many choices of pods give what is `taken` there.
    """
    gone, freed_by, kept = {*gone}, 0, 0
    for owner, mask in (view.taken() if taken is None else taken).items():
        if owner in gone:
            freed_by |= mask
        else:
            kept |= mask  # a slice keeps its GPU
    return freed_by & ~kept & view.fit


def _exhausted(demands: Demands, view: NodeView, gone: Iterable[str]) -> frozenset[str]:
    """Return the devices of a node of which too few counters are left once these pods are gone."""
    gone = {*gone}
    staying = {claim.gpu for claim, standing in view.claims if standing is not Standing.FREE and claim.uid not in gone}
    return demands.inventory(view.name).parts.counters.exhausted_beside({*staying, *view.dra.held})


def comes_before(state: ClusterState, own: int, uid: str) -> bool:
    """Whether a pod might have been preempted for one of this priority: then others do not get what it gives back."""
    pod = state.pods.get(uid)
    return pod is not None and priority_of(pod.pod) < own


def may_end(state: ClusterState, demands: Demands, pod: GpuPod, own: int) -> bool:
    """Whether a pod may be asked to end: it is not ending, and no other that uses its claims is as important as `own`."""
    if not pod.is_alive or pod.claimed is None:
        return False
    users = map(state.pods.get, consumers_of(demands, pod))
    return all(user and user.node == pod.node and priority_of(user.pod) < own for user in users)


def refusal_for(
    pod: GpuPod, demands: Demands, budgets: BudgetsOfPods, refusal_of: Callable[[str], NoVictims | None]
) -> NoVictims | None:
    """Return why the eviction of a pod would be refused, or that of one that uses its claims was refused lately."""
    if len(budgets.of(pod.pod.metadata)) > 1:  # the API server evicts no such pod
        return NoVictims.BUDGETS
    refusals = map(refusal_of, (pod.uid, *consumers_of(demands, pod)))
    return next((refusal for refusal in refusals if refusal), None)


def with_consumers(state: ClusterState, demands: Demands, pods: Iterable[GpuPod]) -> tuple[GpuPod, ...]:
    """Return these pods, and all others that use their claims: a claim is deallocated when nobody uses it any more."""
    together = dict[str, GpuPod]()
    for pod in pods:
        together[pod.uid] = pod
        users = (state.pods.get(uid) for uid in consumers_of(demands, pod))
        together |= {user.uid: user for user in users if user is not None and user.is_alive}
    return tuple(together.values())


def leaving_from(state: ClusterState, view: NodeView, gone: Iterable[str]) -> Leaving:
    """Return what a node gets back when these pods are gone, as far as they are there."""
    gone = [*gone]
    return Leaving(view.name, Held(freed(view, gone)), demand_of(state, view, gone))


def demand_of(state: ClusterState, view: NodeView, gone: Iterable[str]) -> HostDemand:
    """Return what these pods have of a node besides GPUs, as far as they are there."""
    running = (pod for uid in gone if (pod := state.pods.get(uid)) and pod.node == view.name and not pod.ended)
    return sum((HostDemand.of(pod.pod) for pod in running), NO_DEMAND)


def fits_without(
    state: ClusterState, demands: Demands, nodes: PlannedNodes, targets: Sequence[Assignment], gone: Iterable[str]
) -> Search[bool]:
    """Return whether all waiting pods may have exactly their targets once these pods are gone."""
    gone, leaving, exhausted = [*gone], dict[str, Leaving](), dict[str, frozenset[str]]()
    for target in targets:
        view = state.views.get(target.node)
        if view is None:
            return False
        if target.node not in leaving:
            leaving[target.node] = leaving_from(state, view, gone)
            exhausted[target.node] = _exhausted(demands, view, gone)
        if not exhausted[target.node].isdisjoint(view.devices[i] for i in target.placement.gpus):
            return False
        free = view.shape.free | leaving[target.node].held.gpus
        uid, alternative = target.pod.metadata.uid, target.request.alternative
        while (suits := demands.fits_on(uid, view, free, alternative)) is None:
            yield  # the next look gets further
        if not suits:
            return False
        yield
    return (yield from still_fits(nodes, targets, leaving.values()))
