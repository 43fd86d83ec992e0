"""Ends pods of lower priority for pods with claims that find no room, by way of the Eviction API.

The replica that plans the queue does it. All evictions of a preemption are tried before the first one is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from extender.binding.driver import Driver
from extender.binding.intents import Step, read_live
from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.cluster.state import ClusterState
from extender.core.queue_outlook import QueueOutlook
from extender.features.dra import preemption_events as events
from extender.features.dra.demands import Demands
from extender.features.dra.gang_victims import GangVictimSearch
from extender.features.dra.preempting import (
    DevicePreemption,
    PreemptionTurns,
    is_unchanged,
    still_to_evict,
)
from extender.features.dra.victims import DeviceVictims, NoVictims, VictimSearch, fits_without
from extender.kit.clock import Clock, Instant
from extender.kit.fair_table import FairTable
from extender.kit.plain_structlog import structlog
from extender.kit.turns import in_turns
from extender.kubernetes.events import EventRecorder, PodName
from extender.kubernetes.eviction import EvictionOutcome, evict
from extender.kubernetes.rest import Send
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.promises import PromiseEnd, fate, promise, take_back
from extender.planning.queue import nodes_without
from extender.planning.units import Unit
from extender.telemetry.metrics import Metrics
from topology.effort import Search

ROUND_SECONDS: Final = 0.25
SEARCH_SECONDS: Final = 1.0
"""Between two searches for victims."""
SEARCH_RATIO: Final = 9
"""Times what a search took, at least: searches cost a tenth of the time, however many pods wait."""
RETRY_SECONDS: Final = 5.0
"""Before an eviction is asked for again that was refused after others had been granted."""
PODS_AT_ONCE: Final = 256
"""For which others end; the last gang may exceed that. For each of them GPUs are held, and looked at in each round."""
SETTLED_SECONDS: Final = 5.0
"""After this replica begins to plan, before it preempts: by then the first plans have shown what fits."""
REASONS: Final = 10_000
"""Of pods for which none ends, and of those whose evictions have been refused."""
REFUSED_SECONDS: Final = 120.0
"""For so long a pod is spared whose eviction was refused: others may end instead of it."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Preemptions:
    """The preemptions of one extender."""

    state: ClusterState
    demands: Demands
    driver: Driver
    send: Send
    clock: Clock
    metrics: Metrics
    recorder: EventRecorder
    queue: QueueOutlook
    under_way: dict[str, DevicePreemption] = field(default_factory=dict)
    """By UID of the waiting pod, or key of the gang."""
    turns: PreemptionTurns = field(init=False)
    _why_none: FairTable[str, str] = field(default_factory=lambda: FairTable(REASONS))
    """UID of a waiting pod → why no pod ends for it, as of the last search."""
    _refusals: FairTable[str, tuple[NoVictims, float]] = field(default_factory=lambda: FairTable(REASONS))
    """UID of a pod → why its eviction was refused, and until when it is spared, in monotonic seconds."""
    _search_not_before: float | None = None
    """Monotonic seconds; `None`: this replica does not plan."""

    def __post_init__(self) -> None:
        """Begin with none."""
        self.turns = PreemptionTurns(self.state)

    def words_of(self, pod: GpuPod) -> str | None:
        """Return what there is to say of a pod, `None` if nothing."""
        if preemption := next((item for item in self.under_way.values() if pod.uid in item.uids), None):
            return events.waits_in_words(preemption)
        why = self._why_none.get(pod.uid)
        return f"no pod is preempted for it: {why}" if why and pod.awaits_plan else None

    async def follow(self) -> None:
        """Follow the preemptions, and evict what is still to be evicted."""
        if not self.state.synced:
            return
        if not self.queue.is_here():
            for preemption in [*self.under_way.values()]:
                self._end(preemption, PromiseEnd.STOOD_BY)
            return
        for preemption in [*self.under_way.values()]:
            if end := fate(self.state, preemption.targets, preemption.deadline, self.clock().monotonic):
                self._end(preemption, end)
            elif self.clock().monotonic >= preemption.not_before:
                await self._go_on(preemption)
            await asyncio.sleep(0)  # a look at a large gang takes a millisecond

    async def begin_next(self) -> None:
        """Begin at most one more; a search may take seconds, and those under way are followed meanwhile."""
        if not (self.state.synced and self.queue.is_here()):
            self._search_not_before = None
            return
        began = self.clock().monotonic
        if self._search_not_before is None:
            self._search_not_before = began + SETTLED_SECONDS
        pods = sum(len(preemption.targets) for preemption in self.under_way.values())
        if pods < PODS_AT_ONCE and began >= self._search_not_before:
            await self._begin_one()
            end_of_search = self.clock().monotonic
            self._search_not_before = end_of_search + max(SEARCH_SECONDS, SEARCH_RATIO * (end_of_search - began))

    async def _begin_one(self) -> None:
        """Search victims for the pod or gang whose turn it is, and hold for it what they give back."""
        now = self.clock()
        units = {key: preemption.victims.unit for key, preemption in self.under_way.items()}
        unit = await in_turns(self.turns.next_waiting(self.queue.without_room(), self.queue.gang_of, units, now))
        if unit is None:
            return
        victims = await in_turns(self.state.effort.bounded_steps(self._search(unit, now)))
        if isinstance(victims, NoVictims):
            self._in_vain(unit, victims)
            return
        if why := await self._why_not(victims):
            self._in_vain(unit, why)
            return
        preemption = DevicePreemption.of(self.state, victims, self.clock())
        if not (await self._holds_still(preemption) and self._may_reserve(preemption)):
            self.turns.in_vain(unit.members[0].pod.metadata.uid, self.clock().monotonic)
            return  # the cluster has changed since the search began
        promise(self.state, preemption.targets, preemption.deadline)
        self.under_way[unit.key] = preemption
        for uid in preemption.uids:
            self._why_none.pop(uid)
        self.metrics.count(events.PREEMPTIONS, events.BEGUN)
        self.recorder.record(events.waits(preemption))
        words = _words(preemption.targets[0].pod)
        log.info("pods are to end for another", pod=words, nodes=victims.nodes, victims=_names(victims))

    def _search(self, unit: Unit, now: Instant) -> Search[DeviceVictims | NoVictims]:
        """Search victims for a pod or a gang."""
        nodes = self._nodes(now, unit.key, {member.pod.metadata.uid for member in unit.members})
        if unit.is_gang:
            return GangVictimSearch(self.state, self.demands, nodes, unit, now, self._refusal_of).run()
        return VictimSearch(self.state, self.demands, nodes, unit, now, self._refusal_of).run()

    def _nodes(self, now: Instant, key: str, uids: Collection[str]) -> PlannedNodes:
        """Return the nodes without what is held or kept for others than these pods."""
        return nodes_without(self.state, now, self.queue.kept(key), uids)

    async def _holds_still(self, preemption: DevicePreemption) -> bool:
        """Whether the waiting pods still fit without these pods, and nothing about them has changed."""
        nodes = self._nodes(self.clock(), preemption.key, preemption.uids)
        fits = fits_without(self.state, self.demands, nodes, preemption.targets, preemption.gone)
        if not await in_turns(self.state.effort.bounded_steps(fits)):
            return False
        unit = await in_turns(self.queue.read_again(preemption.victims.unit))
        return is_unchanged(self.state, self.demands, preemption, unit)

    def _may_reserve(self, preemption: DevicePreemption) -> bool:
        """Whether the pods still wait in the queue of this replica, which holds nothing for them."""
        now = self.clock().monotonic
        return (
            self.queue.is_here()
            and not any(self.state.holds.firm_of(uid, now) or self.state.claimed_on(uid) for uid in preemption.uids)
            and len(still_to_evict(self.state, preemption)) == len(preemption.victims.pods)
        )

    async def _why_not(self, victims: DeviceVictims) -> str:
        """Try all evictions without carrying them out; returns why one would be refused, or nothing."""
        for pod in victims.pods:
            answer, why = await evict(self.send, PodName.of(pod), dry_run=True)
            if answer is EvictionOutcome.EVICTED:
                continue
            self.metrics.count(events.VICTIMS, answer)
            self._learn_refusal(pod, answer, why)
            reasons = {EvictionOutcome.BUDGET: NoVictims.BUDGETS, EvictionOutcome.GONE: NoVictims.ENDING}
            return reasons.get(answer, f"a victim cannot be evicted: {why}")
        return ""

    async def _go_on(self, preemption: DevicePreemption) -> None:
        """Evict the victims that have not been evicted, each only if all waiting pods still get their places without it.

        Those with budgets come first: only their evictions are likely to be refused, and then no other one is in vain.
        """
        victims = still_to_evict(self.state, preemption)
        if not victims:
            return
        wait = _wait_live([target.pod.metadata for target in preemption.targets])
        if not await self.driver.drive(wait, self.driver.deadline()):
            return  # the watch shows what has become of it, or the next round asks again
        budgets = BudgetsOfPods(self.state.budgets)
        for victim in sorted(victims, key=lambda pod: not budgets.of(pod.pod.metadata)):
            if not await self._holds_still(preemption):
                self._end(preemption, PromiseEnd.CHANGED)
                return
            if not self.queue.is_here() or fate(
                self.state, preemption.targets, preemption.deadline, self.clock().monotonic
            ):
                return  # the next round ends it
            newest = self.state.pods.get(victim.uid)
            if newest is None or not newest.is_alive:
                continue
            if not await self._evict(preemption, newest):
                return

    async def _evict(self, preemption: DevicePreemption, pod: GpuPod) -> bool:
        """Evict a pod in any version: its priority and its node never change. Returns whether to go on with the next one."""
        name = PodName.of(pod)
        answer, why = await evict(self.send, name)
        self.metrics.count(events.VICTIMS, answer)
        log.info("asked for an eviction", pod="/".join(pod.key), node=pod.node, answer=str(answer), why=why)
        if answer is EvictionOutcome.EVICTED:
            preemption.evicted.add(pod.uid)
            self.recorder.record(events.preempted(name, pod.node, preemption))
            return True
        self._learn_refusal(pod, answer, why)
        if answer in (EvictionOutcome.BUDGET, EvictionOutcome.REFUSED) and not preemption.evicted:
            self._end(preemption, PromiseEnd.REFUSED)
        preemption.not_before = self.clock().monotonic + RETRY_SECONDS
        return False

    def _learn_refusal(self, pod: GpuPod, answer: EvictionOutcome, why: str) -> None:
        """Spare a pod for a while, or every search would choose it again; a busy API server says nothing of the pod."""
        reasons = {EvictionOutcome.BUDGET: NoVictims.BUDGETS, EvictionOutcome.REFUSED: NoVictims.REFUSED}
        reason = reasons.get(answer)
        if reason and (reason is NoVictims.REFUSED or "disruption budget" in why):
            self._refusals.put(pod.uid, pod.key[0], (reason, self.clock().monotonic + REFUSED_SECONDS))

    def _refusal_of(self, uid: str) -> NoVictims | None:
        refusal = self._refusals.get(uid)
        return refusal[0] if refusal and self.clock().monotonic < refusal[1] else None

    def _in_vain(self, unit: Unit, why: str) -> None:
        metadata = unit.members[0].pod.metadata
        self.turns.in_vain(metadata.uid, self.clock().monotonic)
        for member in unit.members:
            self._why_none.put(member.pod.metadata.uid, metadata.namespace, str(why))
        if why not in (NoVictims.ROOM, NoVictims.NONE, NoVictims.ENDING):
            self.recorder.record(events.preempts_none(PodName.of_metadata(metadata), str(why)))

    def _end(self, preemption: DevicePreemption, end: PromiseEnd) -> None:
        """Follow a preemption no longer."""
        now = self.clock().monotonic
        del self.under_way[preemption.key]
        if end is not PromiseEnd.SERVED:
            take_back(self.state, preemption.targets, now)
        self.metrics.count(events.PREEMPTIONS, end)
        pod = _words(preemption.targets[0].pod)
        log.info("a preemption has ended", pod=pod, outcome=str(end), evicted=len(preemption.evicted))
        if preemption.evicted and end in (PromiseEnd.SERVED, PromiseEnd.ELSEWHERE):
            for uid in preemption.uids:
                self.turns.got_place(uid, now)
        if end in (PromiseEnd.SERVED, PromiseEnd.GONE):
            return
        self.turns.in_vain(preemption.targets[0].pod.metadata.uid, now)
        if event := events.given_up(preemption, end):
            self.recorder.record(event)


def _wait_live(waiting: Iterable[ObjectMeta]) -> Step[bool]:
    """Read pods live; returns whether they are the same ones and wait."""
    for metadata in waiting:
        pod = yield from read_live(metadata)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return False
    return True


def _words(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _names(victims: DeviceVictims) -> list[str]:
    return ["/".join(pod.key) for pod in victims.pods]
