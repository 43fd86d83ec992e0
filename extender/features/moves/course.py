"""Decides how a plan goes on: what is reserved for it, who is evicted next, when it has come true or is given up. No I/O.

What is reserved stands in memory, as holds that yield to nobody and expire. The waiting pod has one on its target. Each moved
pod has one on its new place. No pod gets that before the eviction, and then only the next pod of the same owner with the same
request. So a planner that dies leaves nothing behind: pods without GPUs are planned as all others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain

from extender.cluster.candidates.holds import Hold, Ranked
from extender.cluster.objects.constraints import is_plain, may_go
from extender.cluster.objects.gpu_pods import GpuPod, owner_of
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import Jobs
from extender.features.moves.movable import BudgetsOfPods, Stays, is_alone, may_go_together, movable_pod
from extender.kit.clock import Instant
from extender.planning.moves import Leaving, MovablePod, MovePlan
from extender.planning.planned_nodes import NO_DEMAND, HostDemand
from extender.planning.units import Assignment
from extender.verbs.pod_context import PodContext
from topology.errors import RequestError


class MoveEnd(StrEnum):
    """What became of a plan."""

    SERVED = "served"
    """The waiting pod has its place."""
    ELSEWHERE = "elsewhere"
    """It has another one."""
    GONE = "gone"
    """It is gone."""
    DEADLINE = "deadline"
    CHANGED = "changed"
    """The pod, its place, or that of a moved pod, is not what it was."""
    REFUSED = "refused"
    """A pod may not be evicted: a budget or a right is missing."""
    STOOD_BY = "stood-by"
    """Another replica plans now."""


@dataclass(slots=True)
class RoomPlan:
    """A plan that is being carried out."""

    plan: MovePlan
    gain_gpu_seconds: float
    deadline: float
    """Monotonic seconds."""
    evicted: set[str] = field(default_factory=set)
    """UIDs of the pods whose eviction was granted."""
    tried: set[str] = field(default_factory=set)
    """UIDs of the pods that have been evicted, or may have been: the answer was lost."""
    protected: set[str] = field(default_factory=set)
    """UIDs of the pods that had a budget when the plan began."""
    is_promised: bool = False
    """Whether all of its evictions have been tried, and the limits allow them together."""
    not_before: float = 0.0
    """When the next eviction may be tried, in monotonic seconds."""

    @property
    def uid(self) -> str:
        """Of the waiting pod."""
        return self.plan.target.pod.metadata.uid

    @property
    def namespace(self) -> str:
        """Of the waiting pod."""
        return self.plan.target.pod.metadata.namespace

    @property
    def to_move(self) -> Iterator[tuple[Pod, str]]:
        """The pods whose eviction has not been granted, each with the namespace that it moves for."""
        return ((moved.wanted.pod, self.namespace) for moved, _ in self.plan.moves if moved.uid not in self.evicted)

    @property
    def cost_gpu_seconds(self) -> float:
        """What its evictions have cost so far."""
        return sum(pod.cost_gpu_seconds for pod, _ in self.plan.moves if pod.uid in self.evicted)

    def key_of(self, moved: MovablePod) -> str:
        """Return the key under which the new place of a pod is held."""
        return f"{self.uid}/{moved.uid}"

    @property
    def keys(self) -> frozenset[str]:
        """All keys under which anything is held for it."""
        return frozenset({self.uid, *(self.key_of(pod) for pod, _ in self.plan.moves)})


def reserve(state: ClusterState, room: RoomPlan) -> None:
    """Hold the target for the waiting pod, and the new places for no pod yet."""
    room.protected = {moved.uid for moved, _ in room.plan.moves if state.budgets.of(moved.wanted.pod.metadata)}
    state.holds.put(room.uid, _hold(room.plan.target, room.deadline))
    for moved, place in room.plan.moves:
        state.holds.put(room.key_of(moved), _hold(place, room.deadline))


def withdraw(state: ClusterState, room: RoomPlan, end: MoveEnd, now: float) -> None:
    """Hold nothing more for a plan that has ended, but for the new places of pods that may have been evicted."""
    if end is not MoveEnd.SERVED and _has_target(state, room, now):
        state.holds.release(room.uid)
    for moved, _ in room.plan.moves:
        if moved.uid not in room.tried or end is MoveEnd.STOOD_BY:
            state.holds.release(room.key_of(moved))


def stand_by(state: ClusterState, ended: Iterable[RoomPlan], now: float) -> None:
    """Hold nothing for any pod of the queue, nor for successors: another replica plans now."""
    for room in ended:
        for key in room.keys - {room.uid}:
            state.holds.release(key)
    for uid in state.indexes.gates.queued:
        if state.holds.firm_of(uid, now):
            state.holds.release(uid)


def bequeath(state: ClusterState, room: RoomPlan, pod: GpuPod) -> None:
    """Let the successor of a pod that is about to be evicted have its new place, and no pod of its owner that waits already."""
    heir = state.heir_of(pod)
    moved = next(moved for moved, _ in room.plan.moves if moved.uid == pod.uid)
    room.tried.add(pod.uid)
    if heir is not None:
        state.holds.bequeath(room.key_of(moved), replace(heir, not_for=frozenset(_waiting_siblings(state, pod))))


def revoke(state: ClusterState, room: RoomPlan, pod: GpuPod) -> None:
    """Take that back: the pod stays."""
    moved = next(moved for moved, _ in room.plan.moves if moved.uid == pod.uid)
    room.tried.discard(pod.uid)
    state.holds.revoke(room.key_of(moved))


def learn_of_evictions(state: ClusterState, room: RoomPlan) -> list[MovablePod]:
    """Return the pods that were evicted although the answer was lost, each once."""
    lost = [moved for moved, _ in room.plan.moves if moved.uid in room.tried - room.evicted]
    left = [moved for moved in lost if not ((pod := state.pods.get(moved.uid)) and pod.is_alive)]
    room.evicted.update(moved.uid for moved in left)
    return left


def fate(state: ClusterState, room: RoomPlan, now: float) -> MoveEnd | None:
    """Return what became of a plan, `None` while it goes on."""
    target, pod = room.plan.target, state.pods.get(room.uid)
    if pod is None or not pod.is_alive:
        return MoveEnd.GONE
    places = {pod.node or pod.directed_to} - {None} or {*state.claimed_on(room.uid)}
    if places:
        return MoveEnd.SERVED if places == {target.node} else MoveEnd.ELSEWHERE
    if not pod.awaits_plan or not _has_target(state, room, now):
        return MoveEnd.DEADLINE if now >= room.deadline else MoveEnd.CHANGED
    return MoveEnd.DEADLINE if now >= room.deadline else None


def still_to_move(state: ClusterState, room: RoomPlan) -> list[GpuPod]:
    """Return the pods that are to be evicted yet, those with budgets first: only these are likely to be refused."""
    pods = (state.pods.get(moved.uid) for moved, _ in room.plan.moves if moved.uid not in room.evicted)
    alive = [pod for pod in pods if pod is not None and pod.is_alive]
    return sorted(alive, key=lambda pod: pod.uid not in room.protected)


def may_still_move(state: ClusterState, room: RoomPlan, pods: Iterable[GpuPod], now: Instant, jobs: Jobs) -> bool:
    """Whether these pods of a plan are where they were, nothing forbids to evict them, and the waiting pod asks what it did."""
    waiting = state.pods.get(room.uid)
    if waiting is None or not _still_asks(state, waiting, room.plan.target, now):
        return False
    before = {moved.uid: moved for moved, _ in room.plan.moves}
    again, budgets_of = list[MovablePod](), BudgetsOfPods(state.budgets)
    for pod in pods:
        moving = movable_pod(state, pod, waiting, now, budgets_of, jobs)
        planned = before[pod.uid]
        if (
            not state.movable.include(pod.pod)
            or isinstance(moving, Stays)
            or (moving.node, moving.gpus) != (planned.node, planned.gpus)
        ):
            return False
        again.append(moving)
    return may_go_together(budgets_of, again)


def places_left(state: ClusterState, room: RoomPlan, now: float) -> tuple[Assignment, ...]:
    """Return what is promised and nobody has taken yet: the target, and new places without a successor."""
    held = state.holds.places(now)
    return room.plan.target, *(place for moved, place in room.plan.moves if room.key_of(moved) in held)


def leaving(state: ClusterState, room: RoomPlan) -> Iterator[Leaving]:
    """Yield what the pods of a plan have and will give back; GPUs that are sick by now are not free without them."""
    for moved, _ in room.plan.moves:
        view, pod = state.views.get(moved.node), state.pods.get(moved.uid)
        if view and (gpus := view.taken().get(moved.uid, 0) & view.fit):
            is_there = pod is not None and not pod.ended
            yield Leaving(moved.node, gpus, HostDemand.of(moved.wanted.pod) if is_there else NO_DEMAND)


def _waiting_siblings(state: ClusterState, pod: GpuPod) -> Iterator[str]:
    """Yield the UIDs of the pods of the same owner that wait, with the gate or without."""
    namespace, owner = pod.key[0], owner_of(pod.pod)
    gated = (uid for uid, queued in state.indexes.gates.queued.items() if queued.pod.metadata.namespace == namespace)
    for uid in chain(gated, state.indexes.waiting.of_namespace(namespace, pod.pod.spec.scheduler_name or "")):
        sibling = state.pods.get(uid)
        if sibling is not None and owner_of(sibling.pod) == owner:
            yield uid


def _still_asks(state: ClusterState, waiting: GpuPod, target: Assignment, now: Instant) -> bool:
    """Whether the newest version of the pod that waits may go to its target, and asks for what the plan gives it."""
    view = state.views.get(target.node)
    if view is None or not may_go(waiting.pod, view.node):
        return False
    try:
        context = PodContext.read(state, waiting.pod, now)
    except RequestError:
        return False
    return (
        is_alone(context)
        and context.request == target.request
        and is_plain(waiting.pod, with_claims=waiting.claimed is not None)
    )


def _has_target(state: ClusterState, room: RoomPlan, now: float) -> bool:
    return state.holds.own(room.uid, room.plan.target.node, now) == room.plan.target.gpus


def _hold(place: Assignment, deadline: float) -> Hold:
    ranked = (Ranked(place.node, place.placement),)
    return replace(Hold.of(place.node, place.placement, place.request, deadline, ranked), is_firm=True)
