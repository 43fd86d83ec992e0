"""Ends pods that have to go, a few at a time, and one gang after the other: its GPUs may be enough for the next.

Pods go by way of the Eviction API: budgets hold, and a pod that has changed since it was judged stays. Before a member of a gang
goes, others that are not bound are read live, as the watch may be behind.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from extender.binding.driver import Driver
from extender.binding.intents import Step, read_live
from extender.cluster.objects.gpu_pods import GpuPod, owner_of
from extender.cluster.objects.group_words import GroupKey
from extender.cluster.state import ClusterState
from extender.features.queue import events
from extender.features.queue.endings import Ending, of_gang, of_stranded, priority, witnesses
from extender.features.queue.half_gangs import HalfGang, is_on_its_way
from extender.features.queue.series import EVICTIONS
from extender.kit.backoff import Backoff, Pauses
from extender.kubernetes.events import PodName
from extender.kubernetes.eviction import EvictionOutcome
from extender.kubernetes.evictor import Eviction, Evictor
from extender.telemetry.metrics import Metrics

AT_ONCE: Final = 8
"""Evictions of one look."""
SETTLE_SECONDS: Final = 30.0
"""For pods to end and others to be planned on their GPUs, before another gang has to go: the default grace period."""
PAUSE_SECONDS: Final = 300.0
"""Between two ends of the same gang, at least; each further pause is twice as long."""
LONGEST_PAUSE_SECONDS: Final = 3600.0


@dataclass(slots=True)
class QueueEvictions:
    """The evictions of one extender's queue."""

    state: ClusterState
    driver: Driver
    evictor: Evictor
    metrics: Metrics
    may_act: Callable[[], bool]
    """Whether this replica plans, and no other one."""
    under_way: Callable[[], Container[str]]
    """Returns the UIDs of pods whose plans are being carried out."""
    _pauses: Backoff = field(default_factory=lambda: Backoff(Pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)))
    """By gang."""
    _ending: GroupKey | None = None
    """The gang of which members go now."""
    _settled_at: float = 0.0
    """When another gang may have its turn, in monotonic seconds."""

    async def evict(self, halves: Sequence[HalfGang], stranded: Sequence[GpuPod]) -> None:
        """Evict a few of these, and report those that may not be evicted."""
        if all(gang.key != self._ending for gang in halves):
            self._ending = None
        alone = [ending for pod in stranded if self._may_go(ending := of_stranded(pod))]
        gangs = [
            (gang, [ending for ending in of_gang(gang) if self._may_go(ending)])
            for gang in sorted(halves, key=priority)
        ]
        every = alone + [ending for _, endings in gangs for ending in endings]
        due = {*self.evictor.due({ending.pod.uid: ending for ending in every})}
        left = AT_ONCE
        for ending in [ending for ending in alone if ending.pod.uid in due][:left]:
            left -= 1
            await self._evict(ending)
        for gang, endings in gangs:
            now = [ending for ending in endings if ending.pod.uid in due]
            if now and self._is_next(gang):
                await self._end(gang, now[:left])
                return

    def _may_go(self, ending: Ending) -> bool:
        if obstacle := ending.obstacle:
            self.evictor.events.record(events.not_evicted(PodName.of(ending.pod), ending.why, obstacle, ending.cause))
        return not obstacle

    def _is_next(self, gang: HalfGang) -> bool:
        now = self.driver.now()
        return gang.key == self._ending or (now >= self._settled_at and self._pauses.may_begin(_text(gang.key), now))

    async def _end(self, gang: HalfGang, endings: Sequence[Ending]) -> None:
        """Evict members of a gang, unless a plan for the others has been begun meanwhile, or they have been bound."""
        for ending in endings:
            is_half = await self.driver.drive(_all_unbound(witnesses(gang)), self.driver.deadline())
            planned = self.under_way()
            now = self.driver.now()
            if not is_half or any(is_on_its_way(self.state, pod, planned, now) for pod in gang.unbound):
                return
            if gang.key != self._ending:
                self._ending = gang.key
                self._pauses.failed(_text(gang.key), self.driver.now(), gang.key[0])
            if await self._evict(ending):
                self._settled_at = self.driver.now() + SETTLE_SECONDS

    async def _evict(self, ending: Ending) -> bool:
        pod = ending.pod
        name = PodName.of(pod)
        if not self.may_act():
            return False
        answer = await self.evictor.evict(
            Eviction(
                name,
                events.evicted(name, ending.why),
                partial(events.not_evicted, name, ending.why),
                pod.pod.metadata.resource_version,
            )
        )
        self.metrics.count(EVICTIONS, ending.cause, answer)
        if answer is not EvictionOutcome.EVICTED:
            return False
        if pod.node is None and pod.directed_to in self.state.views:  # its successor should try another node first
            setbacks, owner = self.state.memory.setbacks, owner_of(pod.pod)
            setbacks.fail(owner, pod.directed_to or "", self.driver.now(), name.namespace)
        return True


def _all_unbound(pods: Sequence[GpuPod]) -> Step[bool]:
    """Read pods live; returns whether all of them are there and have no node."""
    for pod in pods:
        live = yield from read_live(pod.pod.metadata)
        if live is None or live.spec.node_name:
            return False
    return True


def _text(key: GroupKey) -> str:
    return "/".join(key)
