"""Carries out plans: the pods of a unit are nominated, then their GPUs are claimed, then their gates are opened. Sans I/O.

Only pods that may go elsewhere are nominated: kube-scheduler tries no other node for one that is pinned.
Nominations come first because each makes a new version of the pod: the gate is opened in exactly the version that the claims
name (`planned_claims`). So a plan is in the ledgers before the first gate of its unit is open, and the next planner finds it
there. Until it is, the GPUs are held in memory.

Until the first gate is open, a plan is given up if a pod is gone or its GPUs are no longer free. After that it is carried on.
A pod whose place is lost then waits in the queue again, as the rest of its gang.

Each pod is followed until it is bound, and every bind is compared with the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.binding.intents import Done, Nominate, OpenGate, Refused, Step
from extender.binding.planned_claims import PlannedPod, claim_planned, planned_record, take_claims_back
from extender.cluster.candidates.holds import NOTHING, Held, Hold
from extender.cluster.objects.constraints import is_plain, may_go
from extender.cluster.objects.gpu_pods import GpuPod, read_group
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.core.openings import BeforeOpening
from extender.features.queue.begun import has_open_member
from extender.features.queue.fate import Fate
from extender.features.queue.reserved import held_for_others
from extender.planning.planner import Start
from extender.planning.promises import firm_hold
from extender.planning.units import Assignment
from topology.effort import Search
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

RETRY_SECONDS: Final = 1.0
"""Between two attempts to open a gate."""
FOLLOWED_AT_ONCE: Final = 32
"""Pods, in one step: about a millisecond."""


_BEFORE_GATES: Final = frozenset({Fate.GONE, Fate.TAKEN_BACK, Fate.GPUS_TAKEN})
"""Of one pod: then the whole unit is taken back, unless one of its gates is open."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A planned pod that is followed no more."""

    assignment: Assignment
    fate: Fate


@dataclass(slots=True)
class _Planned:
    """One pod of a plan."""

    assignment: Assignment
    is_pinned: bool
    replaces: frozenset[str] | None
    """Nodes whose claims of the pod go; see `PlannedPod`."""
    is_nominated: bool = False
    """Or needs no nomination."""
    is_refused: bool = False
    """Its GPUs cannot be claimed, or its gate cannot be opened."""
    not_before: float = 0.0
    """When the next attempt to open the gate may be made, in monotonic seconds: the watch may be behind."""
    preempts: bool = False
    """kube-scheduler is known to end other pods for it."""
    opened_at: float | None = None
    """Monotonic seconds; `None`: its gate is still there, as far as this process knows."""


@dataclass(slots=True)
class StartedUnits:
    """The units whose plans are carried out by this process, and their pods that are not bound yet."""

    state: ClusterState
    life_seconds: float
    nominates: bool
    before_opening: Sequence[BeforeOpening] = ()
    _units: dict[str, dict[str, _Planned]] = field(default_factory=dict)
    """By unit and UID."""
    _unit_of: dict[str, str] = field(default_factory=dict)
    """By UID."""

    def __contains__(self, uid: object) -> bool:
        """Whether a pod is planned, and its gate or its Binding is still to come."""
        return uid in self._unit_of

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._unit_of)

    def under_way(self, now: float) -> frozenset[str]:
        """Return the UIDs of the pods whose gates are still to be opened, or were opened a short while ago.

        A pod that cannot be bound where it is pinned stays open for ever; neither its gang nor the queue waits for it.
        """
        return frozenset(
            uid
            for pods in self._units.values()
            for uid, planned in pods.items()
            if planned.opened_at is None or now - planned.opened_at < self.life_seconds
        )

    def nodes(self) -> Iterator[tuple[str, str]]:
        """Yield the UID of each pod and its node, unit by unit."""
        for pods in self._units.values():
            yield from ((uid, planned.assignment.node) for uid, planned in pods.items())

    def held(self) -> Counter[str]:
        """Return namespace → the GPUs that are planned for its pods, and that these do not hold yet."""
        held = Counter[str]()
        for pods in self._units.values():
            for planned in pods.values():
                held[planned.assignment.pod.metadata.namespace] += len(planned.assignment.placement.gpus)
        return held

    def begin(self, start: Start, now: float, firm: Mapping[str, Mapping[str, Hold]] | None = None) -> Search[bool]:
        """Hold the GPUs of all members of a unit; returns whether they are free, also of `firm` holds, and the pods wait."""
        pods, before = dict[str, _Planned](), dict[str, Hold | None]()
        is_open = start.unit.is_gang and has_open_member(self.state, start.assignments[0].pod.metadata.uid)
        for number, assignment in enumerate(start.assignments):
            if number % FOLLOWED_AT_ONCE == FOLLOWED_AT_ONCE - 1:
                yield
            uid = assignment.pod.metadata.uid
            if not self._is_open_to(assignment, held_for_others(self.state, uid, assignment.node, firm or {})):
                for member, hold in before.items():
                    self.state.holds.put_back(member, hold)
                return False
            before[uid] = self.state.holds.firm_of(uid, now)
            replaces = self.state.may_be_claimed_on(uid) if is_open else frozenset[str]()
            is_pinned = self._is_pinned(start, assignment)
            planned = pods[uid] = _Planned(assignment, is_pinned, replaces if start.unit.is_gang else None)
            # Or by the planner that has claimed for it, and not again.
            planned.is_nominated = planned.is_pinned or bool(self.state.claimed_on(uid))
            self._hold(planned, now)
        self._units.setdefault(start.unit.key, {}).update(pods)
        self._unit_of |= dict.fromkeys(pods, start.unit.key)
        return True

    def forget(self) -> None:
        """Follow no pod any more: another replica plans."""
        for uid in self._unit_of:
            self.state.holds.release(uid)
        self._units.clear()
        self._unit_of.clear()

    def follow(self, now: float) -> Search[list[Ended]]:
        """Take note of what pods have become, hold on to what the others are to get, and return what has ended."""
        ended, looked_at = list[Ended](), 0
        for key, pods in [*self._units.items()]:
            is_open = any(planned.opened_at is not None for planned in pods.values())
            for uid, planned in [*pods.items()]:
                looked_at += 1
                if looked_at % FOLLOWED_AT_ONCE == 0:
                    yield
                if fate := self._fate(uid, planned, now):
                    ended.append(self._end(key, uid, fate))
                    if fate in _BEFORE_GATES and not is_open:
                        ended += [self._end(key, other, Fate.TAKEN_BACK) for other in [*pods]]
                        break
                else:
                    self._hold(planned, now)
        return ended

    def preempting(self) -> list[GpuPod]:
        """Return the open pods for which kube-scheduler has begun to end others, each once.

        It nominates such a pod. Where that is the node that we had nominated it for, nobody can tell.
        """
        pods = list[GpuPod]()
        for planned in (planned for of_unit in self._units.values() for planned in of_unit.values()):
            pod = self.state.pods.get(planned.assignment.pod.metadata.uid)
            if planned.opened_at is None or planned.preempts or pod is None or pod.node:
                continue
            if pod.pod.status.nominated_node_name and not pod.nominated_by_us:
                planned.preempts = True
                pods.append(pod)
        return pods

    def to_nominate(self) -> Iterator[str]:
        """Yield the pods that are to be nominated, before any gate of their unit is opened."""
        if self.nominates:
            for pods in self._units.values():
                yield from (
                    uid for uid, planned in pods.items() if not planned.is_nominated and planned.opened_at is None
                )

    def to_claim(self) -> dict[str, list[str]]:
        """Return node → the pods that are to be claimed for there, once all of their unit have been nominated."""
        by_node = dict[str, list[str]]()
        for pods in self._units.values():
            if not self.nominates or all(planned.is_nominated or planned.opened_at for planned in pods.values()):
                for uid, planned in pods.items():
                    if not self._may_be_open(planned):
                        by_node.setdefault(planned.assignment.node, []).append(uid)
        return by_node

    def claim(self, node: str, uids: Sequence[str], now: float) -> Step[None]:
        """Claim for pods that are planned on a node; plans whose claims are refused there are given up."""
        pods = {uid: planned for uid in uids if (planned := self._planned(uid)) and not self._may_be_open(planned)}
        wanted = [
            PlannedPod(uid, pod.assignment.request, pod.assignment.held, pod.replaces) for uid, pod in pods.items()
        ]
        for uid in (yield from claim_planned(self.state, node, wanted)):
            pods[uid].is_refused = True
            self.state.memory.setbacks.fail(uid, node, now, pods[uid].assignment.pod.metadata.namespace)

    def to_prepare(self) -> list[str]:
        """Return the pods for which something is to be done before their gates are opened, once all of their unit have claims."""
        claimed = (pods for pods in self._units.values() if all(map(self._may_be_open, pods.values())))
        return [uid for pods in claimed for uid, planned in pods.items() if not self._is_prepared(planned)]

    def prepare(self, uid: str, now: float) -> Step[bool]:
        """Do the first thing that is to be done; returns whether the plan goes on. If not, the node steps back from the pod."""
        planned, pod = self._planned(uid), self.state.pods.get(uid)
        if planned is None or pod is None or not pod.awaits_plan or not self._is_claimed(planned):
            return False
        node = planned.assignment.node
        step = next((step for step in self.before_opening if not step.is_done(pod, node)), None)
        if step is None or (yield from step.do(pod, node)):
            return True
        planned.is_refused = True
        self.state.memory.setbacks.fail(uid, node, now, pod.pod.metadata.namespace)
        return False

    def to_open(self, now: float) -> list[str]:
        """Return the pods whose gates are to be opened; of a unit all, or none while one has no claims or is not prepared."""
        claimed = (pods for pods in self._units.values() if all(map(self._may_be_open, pods.values())))
        ready = (pods for pods in claimed if all(map(self._is_prepared, pods.values())))
        waiting = ((uid, planned) for pods in ready for uid, planned in pods.items() if planned.opened_at is None)
        return [uid for uid, planned in waiting if planned.not_before <= now]

    def nominate(self, uid: str) -> Step[bool]:
        """Nominate a pod for its node; returns whether it is. It is tried once, as kube-scheduler does without."""
        planned, pod = self._planned(uid), self.state.pods.get(uid)
        if planned is None or pod is None or planned.is_nominated:
            return False
        planned.is_nominated = True
        metadata = pod.pod.metadata
        reply = yield Nominate(
            metadata.namespace, metadata.name, uid, metadata.resource_version, planned.assignment.node
        )
        return self._learn(reply)

    def to_take_back(self) -> list[tuple[str, ...]]:
        """Return the units of which pods behind our gate have claims and no plan: it was given up, or cannot be carried on."""
        indexes, units, seen = self.state.indexes, list[tuple[str, ...]](), set[str]()
        for uid, pod in indexes.gates.queued.items():
            if uid not in self and uid not in seen and self.state.may_be_claimed_on(uid):
                group = read_group(pod.pod, indexes.groups.words)
                peers = indexes.groups.beside(uid) if group and group.is_gang else []
                unit = uid, *(peer.uid for peer in peers if peer.has_plan_gate and peer.uid not in self)
                seen.update(unit)
                if not (peers and has_open_member(self.state, uid)):
                    units.append(unit)
        return units

    def take_back(self, unit: tuple[str, ...]) -> Step[bool]:
        """Drop the claims of the pods of a unit; returns whether they have none."""
        return not any(uid in self for uid in unit) and (yield from take_claims_back(self.state, unit))

    def to_withdraw(self) -> list[str]:
        """Return the pods that wait without a plan and are still nominated by us: kube-scheduler keeps capacity for them."""
        queued = self.state.indexes.gates.queued.values()
        return [pod.uid for pod in queued if pod.nominated_by_us and pod.uid not in self]

    def withdraw(self, uid: str) -> Step[bool]:
        """Take back the nomination of a pod; returns whether it is."""
        pod = self.state.pods.get(uid)
        if pod is None or not pod.nominated_by_us or uid in self:
            return False
        metadata = pod.pod.metadata
        reply = yield Nominate(metadata.namespace, metadata.name, uid, metadata.resource_version, "")
        return self._learn(reply)

    def open(self, uid: str, now: float) -> Step[bool]:
        """Open the gate of a pod in the version that its claims name, direct and record it; returns whether that is written."""
        planned, pod = self._planned(uid), self.state.pods.get(uid)
        if planned is None or pod is None or not pod.awaits_plan or not self._is_claimed(planned):
            return False
        metadata, node = pod.pod.metadata, planned.assignment.node
        reply = yield OpenGate(
            metadata.namespace,
            metadata.name,
            uid,
            metadata.resource_version,
            node,
            planned.is_pinned,
            is_directed=not self._is_directed_otherwise(pod),
            placement=planned_record(self.state, pod.pod, node, planned.assignment.request),
        )
        if self._learn(reply):
            planned.opened_at = now
            return True
        planned.is_refused = isinstance(reply, Refused)
        planned.not_before = now + RETRY_SECONDS
        return False  # the watch tells what has changed, and the next round tries again or gives the plan up

    def _learn(self, reply: object) -> bool:
        if isinstance(reply, Done) and isinstance(reply.value, Pod):
            self.state.pods.learn(reply.value)
            return True
        return False

    def _fate(self, uid: str, planned: _Planned, now: float) -> Fate | None:
        pod, node = self.state.pods.get(uid), planned.assignment.node
        if pod is None or not pod.is_alive:
            return Fate.GONE
        if pod.node is not None:
            return Fate.SERVED if pod.node == node else Fate.ELSEWHERE
        if pod.is_gated and planned.opened_at is not None:
            return Fate.UNDONE
        if pod.is_gated:
            if not planned.is_refused and self._is_open_to(planned.assignment):
                return None
            return Fate.GPUS_TAKEN if self._are_taken(planned.assignment) else Fate.TAKEN_BACK
        if planned.opened_at is None:
            planned.opened_at = now  # the answer to our write was lost, or somebody else has opened it
        if planned.is_pinned:
            return Fate.STRANDED if node not in self.state.views else None
        return Fate.LEFT if now - planned.opened_at >= self.life_seconds else None

    def _is_open_to(self, assignment: Assignment, held: Held = NOTHING) -> bool:
        """Whether the pod still waits for its plan alone, and may still have the planned GPUs beside what is held for others."""
        uid = assignment.pod.metadata.uid
        pod, view = self.state.pods.get(uid), self.state.views.get(assignment.node)
        if pod is None or not pod.awaits_plan or view is None:
            return False
        is_planned_whole = is_plain(pod.pod, with_claims=pod.claimed is not None)
        if not (is_planned_whole and may_go(pod.pod, view.node)):  # users may narrow a gated pod
            return False
        if view.claims_of(uid):
            return isinstance(view.decide_for(uid, assignment.request), Placement)
        return isinstance(view.decide_on(assignment.held, assignment.request, held), Placement)

    def _are_taken(self, assignment: Assignment) -> bool:
        """Whether another pod has any of the planned GPUs."""
        view, uid = self.state.views.get(assignment.node), assignment.pod.metadata.uid
        taken = view.taken() if view and not assignment.request.is_share else {}
        return any(gpus & assignment.gpus for owner, gpus in taken.items() if owner != uid)

    def _end(self, key: str, uid: str, fate: Fate) -> Ended:
        planned = self._units[key].pop(uid)
        del self._unit_of[uid]
        if not self._units[key]:
            del self._units[key]
        self.state.holds.release(uid)
        return Ended(planned.assignment, fate)

    def _planned(self, uid: str) -> _Planned | None:
        return self._units[self._unit_of[uid]][uid] if uid in self._unit_of else None

    def _may_be_open(self, planned: _Planned) -> bool:
        return planned.opened_at is not None or self._is_claimed(planned)

    def _is_claimed(self, planned: _Planned) -> bool:
        """Whether the ledger has the pod's claims, for the version in which it is."""
        uid, view = planned.assignment.pod.metadata.uid, self.state.views.get(planned.assignment.node)
        pod, claims = self.state.pods.get(uid), view.claims_of(uid) if view and view.is_ledger_known else ()
        return (
            bool(claims)
            and pod is not None
            and {claim.resource_version for claim in claims} == {pod.pod.metadata.resource_version}
        )

    def _is_prepared(self, planned: _Planned) -> bool:
        """Whether nothing is to be done any more before the gate is opened."""
        pod, node = self.state.pods.get(planned.assignment.pod.metadata.uid), planned.assignment.node
        return planned.opened_at is not None or (
            pod is not None and all(step.is_done(pod, node) for step in self.before_opening)
        )

    def _is_pinned(self, start: Start, assignment: Assignment) -> bool:
        """Whether a pod may go to no other node."""
        is_directed = self._is_directed_otherwise(self.state.pods.get(assignment.pod.metadata.uid))
        return not is_directed and (start.unit.is_gang or _requires(assignment.request))

    def _is_directed_otherwise(self, pod: GpuPod | None) -> bool:
        return pod is not None and any(step.directs(pod) for step in self.before_opening)

    def _hold(self, planned: _Planned, now: float) -> None:
        """Keep the GPUs from everybody else for a while; each round renews it. Shares that are claimed would count twice."""
        assignment = planned.assignment
        if assignment.request.is_share and self.state.claimed_on(assignment.pod.metadata.uid):
            self.state.holds.release(assignment.pod.metadata.uid)
            return
        self.state.holds.put(assignment.pod.metadata.uid, firm_hold(assignment, now + self.life_seconds))


def _requires(request: GpuRequest) -> bool:
    """Whether a pod would be refused on most nodes, so that it has to go where it is planned."""
    return request.required is not None or request.min_bandwidth_gb_per_s is not None
