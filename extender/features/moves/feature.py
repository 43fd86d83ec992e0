"""Makes room for pods and gangs of the queue: plans moves, reserves the new places, and evicts one pod after the other.

The replica that plans the queue does it. A plan is checked again before each eviction, and given up where it does not hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from extender.binding.driver import Driver
from extender.binding.intents import Step, read_live
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.state import ClusterState
from extender.config.defaults import QUEUE_LEASE
from extender.core.feature import Core, Feature
from extender.core.queue_outlook import QueueOutlook
from extender.features.moves import events
from extender.features.moves.candidates import WaitingTurns
from extender.features.moves.course import (
    RoomPlan,
    bequeath,
    learn_of_evictions,
    leaving,
    may_still_move,
    places_left,
    reserve,
    revoke,
    stand_by,
    still_to_move,
    withdraw,
)
from extender.features.moves.front import front_table
from extender.features.moves.job_reads import READ_AT_ONCE, read_jobs
from extender.features.moves.jobs import Jobs
from extender.features.moves.limits import MoveLimits, RecordedMove, UnderWay
from extender.features.moves.record import EVICTS_WITHIN_SECONDS, MoveRecord
from extender.features.moves.search import worthwhile_plan
from extender.features.moves.series import BEGUN, COST, GAIN, GAUGES, MOVES, PLANS
from extender.features.moves.settings import MovesSettings
from extender.inspect.front_tables import FrontTable
from extender.inspect.notes import PodNote
from extender.kit.clock import Clock, Instant
from extender.kit.fair_table import FairTable
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_turns
from extender.kubernetes.events import EventRecorder, PodName
from extender.kubernetes.eviction import EvictionOutcome, evict
from extender.kubernetes.rest import Send
from extender.planning.leaving import still_fits
from extender.planning.moves import MovablePod, MovePlan
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.promises import PromiseEnd, fate
from extender.planning.queue import nodes_without
from extender.telemetry.metrics import Figures, Metrics

ROUND_SECONDS: Final = 0.25
SEARCH_SECONDS: Final = 1.0
"""Between two searches for a plan."""
SEARCH_RATIO: Final = 9
"""Times what a search took, at least: searches cost a tenth of the time, however many pods wait."""
RETRY_SECONDS: Final = 5.0
"""Before another eviction of a plan is tried again that was refused."""
REFUSED_SECONDS: Final = 3600.0
"""For so long a pod stays whose eviction was refused: others may move instead of it."""
MOST_CONFLICTS: Final = 3
"""Evictions of a plan that may come to nothing because a pod has changed."""
REFUSED: Final = 10_000
"""Pods of which this is remembered."""
SETTLING: Final = 1000
"""Plans that have ended, and are remembered: the oldest are forgotten first."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Moves(Feature):
    """The moves of one extender."""

    name = "moves"
    section = MovesSettings
    declarations = (PLANS, MOVES, COST, GAIN, *GAUGES)

    state: ClusterState
    driver: Driver
    send: Send
    clock: Clock
    metrics: Metrics
    recorder: EventRecorder
    settings: MovesSettings
    queue: QueueOutlook
    namespace: str
    """Of the queue's Lease, which has the record of moves."""
    plans: list[RoomPlan] = field(default_factory=list)
    """Those that are being carried out."""
    jobs: Jobs = field(default_factory=Jobs)
    limits: MoveLimits = field(init=False)
    record: MoveRecord = field(init=False)
    turns: WaitingTurns = field(init=False)
    _settling: deque[RoomPlan] = field(default_factory=lambda: deque(maxlen=SETTLING))
    """Plans that have ended lately: new places of pods that they have moved may still be held."""
    _refused: FairTable[str, float] = field(default_factory=lambda: FairTable(REFUSED))
    """UID of a pod whose eviction was refused → until when it stays, in monotonic seconds."""
    _search_not_before: float = 0.0
    """Monotonic seconds."""

    def __post_init__(self) -> None:
        """Begin without a plan."""
        self.limits = MoveLimits(self.settings)
        self.record = MoveRecord(self.send, self.clock, self.limits, self.namespace, QUEUE_LEASE)
        self.turns = WaitingTurns(self.state, self.settings, self.limits)

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where it is not enabled."""
        settings = core.config.section(MovesSettings)
        if not settings.enabled:
            return None
        core.state.movable = settings.movable.pods
        return cls(
            state=core.state,
            driver=core.driver,
            send=core.watching.api.send,
            clock=core.clock,
            metrics=core.metrics,
            recorder=core.events,
            settings=settings,
            queue=core.queue,
            namespace=core.config.agents.namespace,
        )

    def rounds(self) -> Iterable[Round]:
        """Return the one that does all."""
        return (Round(name=self.name, work=self.round, every_seconds=ROUND_SECONDS),)

    def figures(self) -> Figures:
        """Return how many plans are being carried out."""
        return {"move_plans_under_way": len(self.plans)}

    def note(self, pod: GpuPod) -> PodNote | None:
        """Return who moves for a pod."""
        plan = next((plan for plan in self.plans if pod.uid in plan.uids), None)
        if plan is None:
            return None
        line = f"{len(plan.evicted)} of {len(plan.plan.moves)} pods have been evicted on {', '.join(plan.plan.nodes)} for it"
        return PodNote(feature=self.name, line=line)

    def front_table(self) -> FrontTable | None:
        """Return the plans that are being carried out, and how much of the limits is used."""
        return front_table(self.plans, self.limits, self.clock().monotonic)

    async def round(self) -> None:
        """Follow the plans, evict at most one pod for each of them, and look for one more plan."""
        if not self.state.synced:
            return
        if not self.queue.is_here():
            self._stand_by()
            return
        if not (self.record.is_read or await self.record.read()):
            return
        for plan in [*self.plans]:
            for moved in learn_of_evictions(self.state, plan):
                self._count(plan, moved)
            if end := fate(self.state, plan.targets, plan.deadline, self.clock().monotonic):
                self._end(plan, end)
            elif self.clock().monotonic >= plan.not_before:
                await self._go_on(plan)
        if len(self.plans) < self.settings.at_once and self.clock().monotonic >= self._search_not_before:
            began = self.clock().monotonic
            await self._begin_one()
            end_of_search = self.clock().monotonic
            self._search_not_before = end_of_search + max(SEARCH_SECONDS, SEARCH_RATIO * (end_of_search - began))

    def nodes_as_planned(self, now: Instant, key: str, room: RoomPlan | None = None) -> PlannedNodes:
        """Return the nodes without what is held for others, and without what the queue keeps for another gang."""
        own = room.uids | room.keys_of_moved if room else frozenset[str]()
        return nodes_without(self.state, now, self.queue.kept(key), own)

    def _stand_by(self) -> None:
        """Hold nothing for plans of this replica any more, and read again later what others record from now on."""
        self.record.is_read = False
        if self.plans or self._settling:
            for plan in [*self.plans]:
                self._end(plan, PromiseEnd.STOOD_BY)
            stand_by(self.state, self._settling, self.clock().monotonic)
            self._settling.clear()

    async def _begin_one(self) -> None:
        """Look for a plan for the pod whose turn it is, and reserve what it needs."""
        now = self.clock()
        under_way = {plan.key: plan.first.namespace for plan in self.plans}
        unit = await in_turns(self.turns.next_unit(self.queue.without_room(), self.queue.gang_of, under_way, now))
        if unit is None or not self.state.budgets.known:
            return
        nodes = self.nodes_as_planned(now, unit.key)
        planned = self._under_way()
        search = worthwhile_plan(
            self.state, nodes, unit, self.settings, self.limits, self.jobs, now, planned, self._is_refused
        )
        made = await in_turns(search)
        if made is None and await read_jobs(self.send, self.jobs, now, READ_AT_ONCE):
            return  # with what has been read there may be a plan the next time
        if made is None or not self.queue.is_here():
            self.turns.in_vain(unit.members[0].pod.metadata, now.monotonic)
            return
        plan, gain = made
        room = RoomPlan(unit, plan, gain, self.clock().monotonic + self.settings.patience)
        if not (await self._holds_still(room) and all(map(self._may_reserve, room.uids))):
            return  # others have come, or a pod has a place, since the search began
        reserve(self.state, room)
        self.plans.append(room)
        self.metrics.count(PLANS, BEGUN)
        self.recorder.record(events.waits(PodName.of_metadata(room.first), plan))
        log.info("pods are to move", pod=room.name, nodes=plan.nodes, moves=_words(plan))

    async def _go_on(self, room: RoomPlan) -> None:
        """Evict the next pod of a plan, if the waiting pods and all that move still get what they were promised.

        Of a gang only the first pod is read live.
        """
        pods = still_to_move(self.state, room)
        if not pods:
            return
        first = room.first
        is_there = await self.driver.drive(_waits_live(first), self.driver.deadline())
        if not is_there:
            return  # the watch tells what has become of it, or the next round asks again
        if not (room.is_promised or await self._promise(room, pods)):
            self._end(room, PromiseEnd.REFUSED)
            return
        recorded = await self._record(room, pods)
        if recorded is None:
            return
        holds_still, unit = await self._holds_still(room), await in_turns(self.queue.read_again(room.unit))
        now, pods = self.clock(), still_to_move(self.state, room)  # from here to the eviction nothing else happens
        if not (pods and self.queue.is_here() and fate(self.state, room.targets, room.deadline, now.monotonic) is None):
            return  # the next round ends it
        if recorded.uid != pods[0].uid or now.monotonic - recorded.at > EVICTS_WITHIN_SECONDS:
            return  # the next round records the one that is to go
        has_places = unit is None or unit.needed <= len(room.targets)
        if not (holds_still and has_places and may_still_move(self.state, room, pods, now, self.jobs)):
            self._end(room, PromiseEnd.CHANGED)
            return
        if unit is None:
            return  # a pod of the gang is missing, or the queue has a plan for it: the next rounds see which
        await self._evict(room, pods[0])

    def _may_reserve(self, uid: str) -> bool:
        """Whether a pod still waits in the queue of this replica, which holds nothing for it."""
        pod, now = self.state.pods.get(uid), self.clock().monotonic
        return (
            self.queue.is_here()
            and pod is not None
            and pod.awaits_plan
            and self.state.holds.firm_of(uid, now) is None
            and not self.state.claimed_on(uid)
        )

    async def _promise(self, room: RoomPlan, pods: list[GpuPod]) -> bool:
        """Ask whether all evictions of a plan would be granted now, and whether the limits allow them."""
        if not self._limits_allow(room, pods):
            return False
        for pod in pods:
            answer, _ = await evict(self.send, PodName.of(pod), dry_run=True)
            if answer is not EvictionOutcome.EVICTED:
                self.metrics.count(MOVES, answer)
                self._learn_refusal(pod, answer)
                return False
        room.is_promised = True
        return True

    async def _record(self, room: RoomPlan, pods: list[GpuPod]) -> RecordedMove | None:
        """Record the next move of a plan before it is made; returns `None` if it may not be made now.

        With the first of the pods that restart together all of them are recorded, and then no limit ends their moves.
        """
        if not await self.record.read():
            return None
        if not room.is_begun(pods[0].uid):
            for moved in room.together(pods[0].uid):
                self.limits.stayed(moved.uid)
        if not self._limits_allow(room, pods):  # others have moved pods since
            self._end(room, PromiseEnd.REFUSED)
            return None
        at, receiver = self.clock().monotonic, room.first.namespace
        together = [moved for moved in room.together(pods[0].uid) if moved.uid not in room.evicted]
        moves = {moved.uid: RecordedMove.of(moved.wanted.pod, receiver, at) for moved in together}
        for move in moves.values():
            self.limits.moved(move)
        return moves[pods[0].uid] if await self.record.write() else None

    def _limits_allow(self, room: RoomPlan, pods: list[GpuPod]) -> bool:
        """Whether these pods of a plan may move together, with those of all other plans."""
        now, others = self.clock(), self._under_way(but_for=room)
        pods = [pod for pod in pods if not room.is_begun(pod.uid)]
        return all(self.limits.may_move(pod, now, others) for pod in pods) and self.limits.may_move_together(
            [pod.pod for pod in pods], room.first.namespace, now.monotonic, others
        )

    async def _evict(self, room: RoomPlan, pod: GpuPod) -> None:
        """Evict a pod in the version that was looked at; its successor may come before the answer."""
        bequeath(self.state, room, pod)
        answer, why = await evict(self.send, PodName.of(pod), pod.pod.metadata.resource_version)
        self.metrics.count(MOVES, answer)
        move, place = next((move, place) for move, place in room.plan.moves if move.uid == pod.uid)
        log.info("asked for a move", pod="/".join(pod.key), to=place.node, answer=str(answer), why=why)
        if answer is EvictionOutcome.EVICTED:
            room.evicted.add(pod.uid)
            self._count(room, move)
            waiting = PodName.of_metadata(room.first)
            self.recorder.record(events.moved(PodName.of(pod), waiting, move, place))
            return
        room.conflicts += answer is EvictionOutcome.GONE
        if room.conflicts >= MOST_CONFLICTS:
            answer = EvictionOutcome.REFUSED  # its owner may change it without end
        self._learn_refusal(pod, answer)
        if answer is not EvictionOutcome.FAILED:  # else nobody knows whether it was evicted
            revoke(self.state, room, pod)
        if answer in (EvictionOutcome.BUDGET, EvictionOutcome.REFUSED) and not room.evicted:
            self._end(room, PromiseEnd.REFUSED)
            return
        room.not_before = self.clock().monotonic + RETRY_SECONDS

    def _learn_refusal(self, pod: GpuPod, answer: EvictionOutcome) -> None:
        """Let a pod stay for long whose eviction a policy refuses, or every search would choose it again."""
        if answer is EvictionOutcome.REFUSED:
            self._refused.put(pod.uid, pod.key[0], self.clock().monotonic + REFUSED_SECONDS)

    def _is_refused(self, uid: str) -> bool:
        return self.clock().monotonic < (self._refused.get(uid) or 0.0)

    def _count(self, room: RoomPlan, moved: MovablePod) -> None:
        """Take note of an eviction that was granted."""
        self.metrics.count(COST, amount=moved.cost_gpu_seconds)
        self.limits.moved(RecordedMove.of(moved.wanted.pod, room.first.namespace, self.clock().monotonic))

    def _under_way(self, but_for: RoomPlan | None = None) -> UnderWay:
        """Return the pods of plans that are yet to move."""
        return UnderWay.adding(move for plan in self.plans if plan is not but_for for move in plan.to_move)

    async def _holds_still(self, room: RoomPlan) -> bool:
        now = self.clock()
        nodes = self.nodes_as_planned(now, room.key, room)
        places, gone = places_left(self.state, room, now.monotonic), [*leaving(self.state, room)]
        return await in_turns(still_fits(nodes, places, gone))

    def _end(self, room: RoomPlan, end: PromiseEnd) -> None:
        now = self.clock().monotonic
        for uid in {moved.uid for moved, _ in room.plan.moves} - room.tried:
            self.limits.stayed(uid)
        withdraw(self.state, room, end, now)
        self.plans.remove(room)
        self._settling.append(room)
        self.metrics.count(PLANS, end)
        log.info("a plan to move pods has ended", pod=room.name, outcome=str(end), evicted=len(room.evicted))
        if end is PromiseEnd.SERVED:
            self.metrics.count(GAIN, amount=room.gain_gpu_seconds)
            self.turns.came_true(room.first)
            return
        self.turns.in_vain(room.first, now)
        is_there = self.state.pods.get(room.first.uid) is not None
        if is_there and (event := events.given_up(PodName.of_metadata(room.first), end)):
            self.recorder.record(event)


def _waits_live(waiting: ObjectMeta) -> Step[bool]:
    """Read a pod live; returns whether it is the same one and still behind a gate."""
    pod = yield from read_live(waiting)
    return pod is not None and bool(pod.spec.scheduling_gates) and pod.metadata.deletion_timestamp is None


def _words(plan: MovePlan) -> list[str]:
    return [f"{place.pod.metadata.namespace}/{place.pod.metadata.name} to {place.node}" for _, place in plan.moves]
