"""Decides how a plan goes on: what is reserved for it, who is evicted next, when it has come true or is given up. No I/O.

What is reserved stands in memory, as holds that yield to nobody and expire. Each waiting pod has one on its target. Each moved
pod has one on its new place. No pod gets that before the eviction, and then only the next pod of the same owner with the same
request. So a planner that dies leaves nothing behind: pods without GPUs are planned as all others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.given_back import Holders, about_to_be_whole, given_back
from extender.cluster.objects.constraints import is_plain, may_go
from extender.cluster.objects.gpu_pods import GpuPod, owner_of, priority_of
from extender.cluster.objects.group_words import restart_group_of
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import Jobs
from extender.features.moves.movable import Stays, is_alone, may_go_together, movable_pod
from extender.kit.clock import Instant
from extender.planning.leaving import Leaving
from extender.planning.moves import MovablePod, MovePlan
from extender.planning.planned_nodes import NO_DEMAND, HostDemand
from extender.planning.promises import PromiseEnd, firm_hold, promise, take_back
from extender.planning.units import Assignment, Unit
from extender.verbs.pod_context import PodContext
from topology.errors import RequestError
from topology.request.domains import GroupRequest


@dataclass(slots=True)
class RoomPlan:
    """A plan that is being carried out."""

    unit: Unit
    """The waiting pods, as they were when the plan was made."""
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
    conflicts: int = 0
    """Evictions that came to nothing, as the pods had changed since they were looked at."""

    @property
    def key(self) -> str:
        """The pod's UID, or the gang's key."""
        return self.unit.key

    @property
    def targets(self) -> tuple[Assignment, ...]:
        """What the waiting pods are to get."""
        return self.plan.targets

    @property
    def first(self) -> ObjectMeta:
        """The waiting pod, or the first member of the gang."""
        return self.targets[0].pod.metadata

    @property
    def name(self) -> str:
        """Namespace and name of that pod."""
        return f"{self.first.namespace}/{self.first.name}"

    @property
    def uids(self) -> frozenset[str]:
        """Of the waiting pods."""
        return frozenset(target.pod.metadata.uid for target in self.targets)

    @property
    def to_move(self) -> Iterator[tuple[Pod, str]]:
        """The pods whose eviction has not been granted, each with the namespace that it moves for."""
        return (
            (moved.wanted.pod, self.first.namespace) for moved, _ in self.plan.moves if moved.uid not in self.evicted
        )

    @property
    def cost_gpu_seconds(self) -> float:
        """What its evictions have cost so far."""
        return sum(pod.cost_gpu_seconds for pod, _ in self.plan.moves if pod.uid in self.evicted)

    def together(self, uid: str) -> list[MovablePod]:
        """Return the pods that move together with one of the plan, itself included."""
        moved = {moved.uid: moved for moved, _ in self.plan.moves}
        return [pod for pod in moved.values() if pod.moves_as == moved[uid].moves_as]

    def is_begun(self, uid: str) -> bool:
        """Whether a pod is to follow one that restarts with it and has been evicted."""
        return any(pod.uid in self.evicted for pod in self.together(uid))

    def key_of(self, moved: MovablePod) -> str:
        """Return the key under which the new place of a pod is held."""
        return f"{self.key}/{moved.uid}"

    @property
    def keys_of_moved(self) -> frozenset[str]:
        """The keys under which new places are held."""
        return frozenset(self.key_of(moved) for moved, _ in self.plan.moves)


def reserve(state: ClusterState, room: RoomPlan) -> None:
    """Hold the targets for the waiting pods, and the new places for no pod yet."""
    room.protected = {moved.uid for moved, _ in room.plan.moves if state.budgets.of(moved.wanted.pod.metadata)}
    promise(state, room.targets, room.deadline)
    for moved, place in room.plan.moves:
        state.holds.put(room.key_of(moved), firm_hold(place, room.deadline))


def withdraw(state: ClusterState, room: RoomPlan, end: PromiseEnd, now: float) -> None:
    """Hold nothing more for a plan that has ended, but for the new places of pods that may have been evicted."""
    if end is not PromiseEnd.SERVED:
        take_back(state, room.targets, now)
    for moved, _ in room.plan.moves:
        if moved.uid not in room.tried or end is PromiseEnd.STOOD_BY:
            state.holds.release(room.key_of(moved))


def stand_by(state: ClusterState, ended: Iterable[RoomPlan], now: float) -> None:
    """Hold nothing for any pod of the queue, nor for successors: another replica plans now."""
    for room in ended:
        for key in room.keys_of_moved:
            state.holds.release(key)
    for uid in state.indexes.gates.queued:
        if state.holds.firm_of(uid, now):
            state.holds.release(uid)


def bequeath(state: ClusterState, room: RoomPlan, pod: GpuPod) -> None:
    """Let the successor of a pod that is about to be evicted have its new place, and no pod of its owner that waits already.

    The same holds for all pods that restart with it: their owner may end them before they are evicted.
    """
    not_for = frozenset(_waiting_siblings(state, pod))
    for moved in room.together(pod.uid):
        if moved.uid not in room.tried and (leaves := state.pods.get(moved.uid)) and (heir := state.heir_of(leaves)):
            state.holds.bequeath(room.key_of(moved), replace(heir, not_for=not_for))
        room.tried.add(moved.uid)


def revoke(state: ClusterState, room: RoomPlan, pod: GpuPod) -> None:
    """Take that back: the pod stays, unless one that restarts with it has been evicted."""
    if room.is_begun(pod.uid):
        return
    for moved in room.together(pod.uid):
        room.tried.discard(moved.uid)
        state.holds.revoke(room.key_of(moved))


def learn_of_evictions(state: ClusterState, room: RoomPlan) -> list[MovablePod]:
    """Return the pods that were evicted although the answer was lost, each once."""
    lost = [moved for moved, _ in room.plan.moves if moved.uid in room.tried - room.evicted]
    left = [moved for moved in lost if not ((pod := state.pods.get(moved.uid)) and pod.is_alive)]
    room.evicted.update(moved.uid for moved in left)
    return left


def still_to_move(state: ClusterState, room: RoomPlan) -> list[GpuPod]:
    """Return the pods that are to be evicted yet, those with budgets first: only these are likely to be refused.

    Pods that restart with one that has been evicted come before all others. Of these the ones in the way come last, because the
    plan ends when the waiting pods have their places.
    """
    pods = (state.pods.get(moved.uid) for moved, _ in room.plan.moves if moved.uid not in room.evicted)
    alive = [pod for pod in pods if pod is not None and pod.is_alive]

    wanted = {target.node for target in room.targets}

    def rank(pod: GpuPod) -> tuple[bool, bool, bool]:
        together = {moved.uid for moved in room.together(pod.uid)}
        return not room.is_begun(pod.uid), room.protected.isdisjoint(together), pod.node in wanted

    return sorted(alive, key=rank)


def may_still_move(state: ClusterState, room: RoomPlan, pods: Iterable[GpuPod], now: Instant, jobs: Jobs) -> bool:
    """Whether nothing forbids to evict these pods of a plan, and they and the waiting pods request what they did."""
    if not all(_still_asks(state, target, room.unit.group, now) for target in room.targets):
        return False
    priority = min(priority_of(target.pod) for target in room.targets)
    before = {moved.uid: moved for moved, _ in room.plan.moves}
    again, budgets, holders = list[MovablePod](), BudgetsOfPods(state.budgets), Holders()
    for pod in pods:
        moving = movable_pod(state, pod, priority, now, budgets, jobs, holders)
        planned = before[pod.uid]
        if (
            not state.movable.include(pod.pod)
            or not _is_complete(state, room, planned)
            or isinstance(moving, Stays)
            or moving.wanted.request != planned.wanted.request
        ):
            return False
        again.append(moving)
    return may_go_together(budgets, again)


def _is_complete(state: ClusterState, room: RoomPlan, planned: MovablePod) -> bool:
    """Whether a plan has all pods that restart with this one; once the first has been evicted, others come in their places."""
    if not planned.restart_group or room.is_begun(planned.uid):
        return True
    members = state.indexes.restart_groups.members(planned.restart_group)
    return members == {moved.uid for moved in room.together(planned.uid)}


def places_left(state: ClusterState, room: RoomPlan, now: float) -> tuple[Assignment, ...]:
    """Return what is promised and nobody has taken yet: the targets, and new places without a successor."""
    held = state.holds.places(now)
    return *room.targets, *(place for moved, place in room.plan.moves if room.key_of(moved) in held)


def leaving(state: ClusterState, room: RoomPlan) -> Iterator[Leaving]:
    """Yield what the pods of a plan have and will give back; GPUs that are sick by now are not free without them.

    A GPU that the last share of the plan has left is free when the node's agent says so.
    """
    holders = Holders()
    for moved, _ in room.plan.moves:
        view, pod = state.views.get(moved.node), state.pods.get(moved.uid)
        if view is None:
            continue
        shared = Held(shares=moved.held.shares).touched
        back = given_back(view, holders.of(view).get(moved.uid, NOTHING)) + about_to_be_whole(view, shared)
        if back:
            is_there = pod is not None and not pod.ended
            yield Leaving(moved.node, back, HostDemand.of(moved.wanted.pod) if is_there else NO_DEMAND)


def _waiting_siblings(state: ClusterState, pod: GpuPod) -> Iterator[str]:
    """Yield the UIDs of the pods of the same owner that wait, with the gate or without."""
    if restart_group := restart_group_of(pod.pod):
        members = (state.pods.get(uid) for uid in state.indexes.restart_groups.members(restart_group))
        yield from (member.uid for member in members if member is not None and member.node is None)
        return
    namespace, owner = pod.key[0], owner_of(pod.pod)
    gated = (uid for uid, queued in state.indexes.gates.queued.items() if queued.pod.metadata.namespace == namespace)
    for uid in chain(gated, state.indexes.waiting.of_namespace(namespace, pod.pod.spec.scheduler_name or "")):
        sibling = state.pods.get(uid)
        if sibling is not None and owner_of(sibling.pod) == owner:
            yield uid


def _still_asks(state: ClusterState, target: Assignment, group: GroupRequest | None, now: Instant) -> bool:
    """Whether the newest version of a waiting pod may go to its target, and asks for what the plan gives it."""
    waiting, view = state.pods.get(target.pod.metadata.uid), state.views.get(target.node)
    if waiting is None or view is None or not may_go(waiting.pod, view.node):
        return False
    try:
        context = PodContext.read(state, waiting.pod, now)
    except RequestError:
        return False
    return (
        (is_alone(context) if group is None else _is_same_but_for_numbers(context.group, group))
        and context.request == target.request
        and is_plain(waiting.pod, with_claims=waiting.claimed is not None)
    )


def _is_same_but_for_numbers(group: GroupRequest | None, planned: GroupRequest) -> bool:
    """Whether both ask the same; size and least size may differ, because not every member states them."""
    return group is not None and replace(group, size=None, least=None) == replace(planned, size=None, least=None)
