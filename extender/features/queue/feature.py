"""The rounds of the queue: what waits is read and planned, what is planned is carried out, and what came of it is counted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final, Self

from extender.binding.driver import Driver
from extender.binding.intents import Step
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.config.defaults import QUEUE_LEASE
from extender.core.feature import Core, Feature
from extender.core.openings import Openings
from extender.core.queue_outlook import QueueOutlook
from extender.features.queue import events, listing
from extender.features.queue.begun import begun_plans
from extender.features.queue.conditions import PlanConditions
from extender.features.queue.estimate import estimate
from extender.features.queue.evictions import QueueEvictions
from extender.features.queue.fate import Fate
from extender.features.queue.half_gangs import HalfGangs
from extender.features.queue.listing import QueueReport, QueueStanding
from extender.features.queue.newcomers import Newcomers
from extender.features.queue.reasons import WaitReasons
from extender.features.queue.reservation_turns import ReservationTurns
from extender.features.queue.reserved import reserved_plans, without_reserved
from extender.features.queue.running import running_pods
from extender.features.queue.search import prepare, search
from extender.features.queue.series import BY_NAMESPACE, EVICTIONS, GANGS, GAUGES, PODS, PREEMPTS, WAITING
from extender.features.queue.settings import QueueSettings
from extender.features.queue.started import StartedUnits
from extender.features.queue.stranded import StrandedPods
from extender.features.queue.waiting import QueuedPods, ReadPods, read_again, read_queue, reasons_of
from extender.inspect.notes import PodNote
from extender.kit.clock import Clock, Instant
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_turns
from extender.kubernetes.events import EventRecorder, PodName
from extender.kubernetes.evictor import Evictor
from extender.kubernetes.lease import RENEW_SECONDS, Leadership
from extender.planning.planner import PlanContext, QueuePlan, Start
from extender.planning.queue import PlacesOfUnits
from extender.telemetry.metrics import Figures, Metrics

ROUND_SECONDS: Final = 0.1
HALF_SECONDS: Final = 5.0
"""Between two looks for half gangs."""
IDLE_SECONDS: Final = 1.0
"""Between two plans for all pods, unless more could start: what waits then waits for something to end."""
IDLE_RATIO: Final = 9
"""Times what that plan took, at least: a long queue that waits in vain costs a tenth of the time."""
LONGEST_IDLE_SECONDS: Final = 30.0
PLANS_BELOW: Final = 0.75
"""Of the pods that may be under way. A plan has a cost of its own, so it is not made for each pod that is bound."""
AT_ONCE: Final = 16
"""Writes; binds go on meanwhile."""
CONDITION_SECONDS: Final = 0.25
"""Between the conditions of two pods."""
EVENTS_AT_ONCE: Final = 64
"""Pods that are told why they wait, of the first in the queue, after each plan."""
NOMINATED_AT_ONCE: Final = 64
"""Pods of which the first gates are opened before the next ones are nominated: kube-scheduler begins with these."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Queue(Feature):
    """The queue of one extender."""

    name = "queue"
    section = QueueSettings
    declarations = (PODS, GANGS, EVICTIONS, WAITING, BY_NAMESPACE, *GAUGES)
    report_kind = QueueReport

    state: ClusterState
    driver: Driver
    clock: Clock
    metrics: Metrics
    recorder: EventRecorder
    settings: QueueSettings
    lock_of: Callable[[str], asyncio.Lock]
    """Returns the lock of a node's ledger."""
    life_seconds: float
    """For how long claims stand of a pod that may still go to another node."""
    leadership: Leadership | None = None
    """Decides whether this replica plans; `None`: it is the only one."""
    evictor: Evictor | None = None
    """`None`: nobody is evicted."""
    conditions: PlanConditions | None = None
    """`None`: pods do not have any."""
    openings: Openings = field(default_factory=Openings)
    outlook: QueueOutlook = field(default_factory=QueueOutlook)
    started: StartedUnits = field(init=False)
    half_gangs: HalfGangs = field(init=False)
    stranded: StrandedPods = field(init=False)
    evictions: QueueEvictions | None = field(init=False)
    reasons: WaitReasons = field(init=False)
    turns: ReservationTurns = field(init=False)
    newcomers: Newcomers = field(init=False)
    _halves: int = 0
    _served_at: float | None = None
    """When a round last came to its end, in monotonic seconds."""
    _not_before: float = 0.0
    """When the next plan for all pods may be made; monotonic seconds."""
    _newcomers_not_before: float = 0.0
    """The same of the next plan for newcomers alone."""
    _read_pods: ReadPods = field(default_factory=ReadPods)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def __post_init__(self) -> None:
        """Begin with nothing planned."""
        self.started = StartedUnits(self.state, self.life_seconds, self.settings.nominate, self.openings.steps)
        self.openings.are_here = self.outlook.is_here = self.plans
        self.turns = ReservationTurns(self.settings.reservation)
        outlook, reasons = self.outlook, WaitReasons(self.state)
        self.reasons = reasons
        outlook.without_room, outlook.gang_of, outlook.kept = reasons.without_room, reasons.gang_of, self.turns.kept
        outlook.read_again = lambda unit: read_again(self.state, unit, self.clock(), self.started)
        self.metrics.watch_labels(WAITING, reasons.by_reason)
        self.metrics.watch_labels(BY_NAMESPACE, reasons.by_namespace)
        self.newcomers = Newcomers(self.state)
        self.half_gangs = HalfGangs(self.state)
        self.stranded = StrandedPods(self.state)
        self.evictions = self._evictions(self.evictor) if self.evictor else None

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where it is not enabled."""
        settings = core.config.section(QueueSettings)
        if not settings.enabled:
            return None
        identity, send = f"{socket.gethostname()}:{core.config.listen.port}", core.watching.api.send
        return cls(
            core.state,
            core.driver,
            core.clock,
            core.metrics,
            core.events,
            settings,
            core.lock_of,
            core.config.reconcile.orphan_after,
            Leadership(send, core.clock, core.config.agents.namespace, QUEUE_LEASE, identity),
            Evictor(send, core.events, core.clock) if settings.evict else None,
            PlanConditions(core.state, send, core.clock) if settings.condition else None,
            core.openings,
            core.queue,
        )

    def rounds(self) -> Iterable[Round]:
        """Return the one that does all, one that looks for what must not be, and one that keeps the Lease."""
        if self.leadership:
            yield Round(name=f"{self.name}-lease", work=self.leadership.renew, every_seconds=RENEW_SECONDS)
        yield Round(name=self.name, work=self.round, every_seconds=ROUND_SECONDS)
        if self.conditions:
            write_one = partial(self.conditions.write_next, self._not_planned)
            yield Round(name=f"{self.name}-conditions", work=write_one, every_seconds=CONDITION_SECONDS)
        yield Round(name=f"{self.name}-half-gangs", work=self.look_for_half_gangs, every_seconds=HALF_SECONDS)

    def plans(self) -> bool:
        """Whether this replica plans, and no other one."""
        return self.leadership is None or self.leadership.is_held

    def report(self) -> QueueReport:
        """Return what waits, in its order."""
        return listing.report(
            self.state, self._standings(), self.clock(), is_served=True, reservation=self.turns.reservation
        )

    @classmethod
    def report_without(cls, state: ClusterState, now: Instant) -> QueueReport:
        """Return what waits in vain."""
        return listing.report(state, listing.without_planner(listing.queued(state)), now, is_served=False)

    def note(self, pod: GpuPod) -> PodNote | None:
        """Return why a pod waits, and its place in the order."""
        is_ours = pod.has_plan_gate or pod.uid in self.started
        return listing.note(self.state, self._standings(), pod.uid) if is_ours else None

    @classmethod
    def note_without(cls, state: ClusterState, pod: GpuPod, now: Instant, *, is_off: bool) -> PodNote | None:
        """Return that a pod waits in vain or, where no extender was asked, why it would wait."""
        if not pod.has_plan_gate:
            return None
        standings = listing.without_planner([pod]) if is_off else estimate(state, now).standings
        return listing.note(state, standings, pod.uid)

    def _standings(self) -> list[QueueStanding]:
        """Return what there is to say of all pods of the queue, in the order in which they are served."""
        if not self.plans():
            return listing.by_another(listing.queued(self.state))
        new = (pod for pod in listing.queued(self.state) if pod.uid not in self.reasons and pod.uid not in self.started)
        return [*self._in_order(), *listing.not_yet(new)]

    def _in_order(self) -> Iterator[QueueStanding]:
        """Yield what the last plan says: pods that are planned, then those that are not."""
        pods = self.state.pods
        yield from (QueueStanding.planned(pod, node) for uid, node in self.started.nodes() if (pod := pods.get(uid)))
        yield from (QueueStanding.not_planned(pod, why) for pod, why in self.reasons)

    async def look_for_half_gangs(self) -> None:
        """Count the gangs that have been half for long, and end them; pods that can go nowhere are ended, too."""
        if not (self.state.synced and self.plans()):
            self._halves = 0
            self.half_gangs.forget()
            self.stranded.forget()
            return
        now = self.clock().monotonic
        halves = await in_turns(self.half_gangs.long_since(now, self._under_way()))
        self._halves = len(halves)
        stranded = self.stranded.long_since(now)
        if self.evictions:
            await self.evictions.evict(halves, stranded)

    def figures(self) -> Figures:
        """Return how the queue is served."""
        now, queued = self.clock(), self.state.indexes.gates.queued.values()
        created = min((since for pod in queued if (since := pod.pod.metadata.creation_timestamp)), default=None)
        served = {} if self._served_at is None else {"queue_silence_seconds": now.monotonic - self._served_at}
        oldest = {} if created is None else {"queue_longest_wait_seconds": now.age_seconds(created)}
        return {"queue_half_gangs": self._halves, **served, **oldest}

    async def round(self) -> None:
        """Follow what is planned, plan what waits, and write what is to be written."""
        if not self.state.synced:
            return
        if not self.plans():
            self._stand_by()
            return
        for ended in await in_turns(self.started.follow(self.clock().monotonic)):
            self.metrics.count(PODS, ended.fate)
            if ended.fate is not Fate.SERVED:
                self.newcomers.forget()  # others may want what was held for this pod
            if self.conditions and ended.fate is Fate.SERVED:
                self.conditions.bound(ended.assignment.pod.metadata.uid, ended.assignment.node)
            if ended.fate is Fate.STRANDED:
                self.recorder.record(
                    events.stranded(PodName.of_metadata(ended.assignment.pod.metadata), ended.assignment.node)
                )
        for pod in self.started.preempting():
            self.metrics.count(PODS, PREEMPTS)
            log.warning("kube-scheduler preempts pods for a planned one", pod="/".join(pod.key), node=pod.directed_to)
        await self._plan()
        await self._carry_out([*self.started.to_nominate()])
        self._served_at = self.clock().monotonic

    def _evictions(self, evictor: Evictor) -> QueueEvictions:
        return QueueEvictions(
            self.state, self.driver, evictor, self.metrics, lambda: self.state.synced and self.plans(), self._under_way
        )

    def _under_way(self) -> frozenset[str]:
        """Return the UIDs of pods whose plans are being carried out."""
        return self.started.under_way(self.clock().monotonic)

    def _stand_by(self) -> None:
        """Hold nothing for plans that another replica makes now."""
        self.started.forget()
        self._served_at = None
        self.reasons.are({})
        self.turns.forget()
        self.newcomers.forget()

    async def _plan(self) -> None:
        """Plan all pods that wait or, before that is due again, those that have just come."""
        now = self.clock()
        if len(self.started.under_way(now.monotonic)) > PLANS_BELOW * self.settings.ahead:
            return
        if now.monotonic >= self._not_before:
            await self._plan_all(now)
        elif now.monotonic >= self._newcomers_not_before and (pods := self.newcomers.take()):
            await self._plan_newcomers(pods, now)

    async def _plan_all(self, now: Instant) -> None:
        self.newcomers.all_are_planned()
        queue = await in_turns(read_queue(self.state, now, self.started, self._read_pods))
        carried_on = set[str]()
        for start in begun_plans(self.state, queue):
            if await in_turns(self.started.begin(start, now.monotonic)):
                carried_on.add(start.unit.key)
        queue = replace(queue, units=tuple(unit for unit in queue.units if unit.key not in carried_on))
        await asyncio.sleep(0)  # each of these looks at all pods
        await self._all(self._drive(self.started.take_back(unit)) for unit in self.started.to_take_back())
        await self._all(self._drive(self.started.withdraw(uid)) for uid in self.started.to_withdraw())
        await asyncio.sleep(0)
        has_gangs = any(unit.is_gang for unit in queue.units)
        running = await in_turns(running_pods(self.state, now)) if has_gangs else []
        may_reserve = self.turns.at(now.monotonic, without_reserved(self.state, queue, now))
        context = PlanContext(now.monotonic, PlacesOfUnits(self.state), lambda: running, may_reserve)
        plan = await self._planned(queue, context)
        self.turns.keep(plan.reservation, now.monotonic)
        self.reasons.are(reasons_of(queue, plan))
        self._explain()
        end = self.clock().monotonic
        seconds = end - now.monotonic
        idle_seconds = min(max(IDLE_SECONDS, IDLE_RATIO * seconds), LONGEST_IDLE_SECONDS)
        self._not_before = end + idle_seconds
        if _is_cut(queue, plan):
            self._not_before = end + seconds
            self.newcomers.forget()

    async def _plan_newcomers(self, pods: Sequence[GpuPod], now: Instant) -> None:
        """Plan pods on what the last plan for all has left."""
        queue = await in_turns(read_queue(self.state, now, self.started, self._read_pods, pods))
        kept = self.turns.reservation
        context = PlanContext(now.monotonic, PlacesOfUnits(self.state), may_reserve=lambda _: False, kept=kept)
        plan = await self._planned(queue, context)
        self.reasons.are_of(pods, reasons_of(queue, plan))
        self._explain()
        end = self.clock().monotonic
        self._newcomers_not_before = end + (end - now.monotonic)
        if _is_cut(queue, plan):
            self._not_before = end
            self.newcomers.forget()

    async def _planned(self, queue: QueuedPods, context: PlanContext) -> QueuePlan:
        """Plan these units, and begin to carry the plan out."""
        reserved = set[str]()
        for start in reserved_plans(self.state, queue, self.clock()):
            if await in_turns(self.started.begin(start, self.clock().monotonic)):
                reserved.add(start.unit.key)
                self._say_planned(start)
        queue = replace(queue, units=tuple(unit for unit in queue.units if unit.key not in reserved))
        await in_turns(prepare(self.state, queue))
        plan = await in_turns(search(self.state, queue, context, self.started, self.settings, self.clock()))
        firm = self.state.holds.firm(self.clock().monotonic)
        for start in plan.starts:
            if await in_turns(self.started.begin(start, self.clock().monotonic, firm)):
                self.turns.started(start.unit)
                self._say_planned(start)
        return plan

    def _explain(self) -> None:
        """Say why they wait to the first of the pods without a plan."""
        for event in events.of_waiting(islice(self._not_planned(), EVENTS_AT_ONCE), self.clock()):
            self.recorder.record(event)

    def _not_planned(self) -> Iterator[tuple[QueueStanding, int | None]]:
        """Yield the pods without a plan in their order, with their places."""
        placed = listing.with_places(self.state, self._in_order()) if self.reasons else ()
        return ((standing, place) for standing, place in placed if standing.pod.uid in self.reasons)

    def _say_planned(self, start: Start) -> None:
        if start.unit.is_gang:
            self.metrics.count(GANGS)
        self.metrics.count(PODS, "planned", amount=len(start.assignments))
        for event in events.of_start(start, self.reasons, self.clock()):
            self.recorder.record(event)

    async def _carry_out(self, to_nominate: Sequence[str]) -> None:
        """Write what is to be written, and of many pods some after the others."""
        for first in range(0, max(1, len(to_nominate)), NOMINATED_AT_ONCE):
            await self._all(
                self._drive(self.started.nominate(uid)) for uid in to_nominate[first : first + NOMINATED_AT_ONCE]
            )
            await self._all(self._claim(node, uids) for node, uids in self.started.to_claim().items())
            now = self.clock().monotonic
            await self._all(self._drive(self.started.prepare(uid, now)) for uid in self.started.to_prepare())
            await self._all(self._open(uid) for uid in self.started.to_open(self.clock().monotonic))

    async def _claim(self, node: str, uids: Sequence[str]) -> None:
        async with self._slots, self.lock_of(node):
            await self.driver.drive(self.started.claim(node, uids, self.clock().monotonic), self.driver.deadline())

    async def _open(self, uid: str) -> None:
        is_open = await self._drive(self.started.open(uid, self.clock().monotonic))
        self.metrics.count(PODS, "opened" if is_open else "not-opened")

    async def _drive(self, steps: Step[bool]) -> bool:
        async with self._slots:
            return await self.driver.drive(steps, self.driver.deadline())

    @staticmethod
    async def _all(work: Iterable[Awaitable[object]]) -> None:
        await asyncio.gather(*work)


def _is_cut(queue: QueuedPods, plan: QueuePlan) -> bool:
    """Whether a plan has come to its end before all units, since enough pods are under way."""
    return len(plan.starts) + len(plan.waits) < len(queue.units)
