"""What an extender does for pods whose GPUs fall sick: it tells them and their groups, and evicts those that ask for it.

A pod is told once of each GPU that falls sick. Only a pod that asks for it is evicted, where the configuration allows it, through
the Eviction API: budgets hold. Nobody else is ever ended by us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, Self

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.sickness import Stricken, companions, stricken_pods
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.features.sick_gpus import events
from extender.features.sick_gpus.settings import SickGpusSettings
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Clock
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_short_turns
from extender.kubernetes.events import EventRecorder, PodName
from extender.kubernetes.eviction import Answer, evict
from extender.kubernetes.rest import Send
from extender.telemetry.metrics import Declaration, Kind, Metrics

EVICTIONS: Final = Declaration(
    "gputopo_evictions",
    "Evictions of pods on sick GPUs, by answer.",
    Kind.COUNTER,
    labels=("answer",),
    values=tuple(product(Answer)),
)
TOLD_SECONDS: Final = 3600.0
"""The API server forgets events after that. What is older when an extender starts is no news any more."""
PACE_SECONDS: Final = 10.0
"""Between two evictions: kube-controller-manager's own pace on nodes that are gone."""
PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
TRIES: Final = 20
"""Of one eviction, more than an hour in all."""
STAYS: Final = "it goes on, and nobody ends it; delete it, and another one is placed elsewhere"
GOES: Final = "it asks to be evicted, and will be as soon as its budget allows"
MAY_NOT_GO: Final = "it asks to be evicted, which is switched off here (`sickGpus.evict`)"

log = structlog.get_logger(__name__)

Case = tuple[str, str, int]
"""UID of a pod, UUID of a GPU, and since when that is sick."""


@dataclass(slots=True, kw_only=True)
class SickGpus(Feature):
    """The rounds of one extender."""

    name = "sick-gpus"
    section = SickGpusSettings
    declarations = (EVICTIONS,)

    state: ClusterState
    send: Send
    events: EventRecorder
    metrics: Metrics
    clock: Clock
    may_evict: bool = False
    every_seconds: float = 1.0
    _told: frozenset[Case] | None = None
    """`None` before the first round."""
    _evictions: Backoff = field(default_factory=lambda: Backoff(Pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)))
    """By UID; an eviction that was granted counts as well, as the pod needs time to end."""
    _next_eviction: float = 0.0

    @classmethod
    def of(cls, core: Core) -> Self:
        """Return the feature; its switch is for evictions only."""
        return cls(
            state=core.state,
            send=core.watching.api.send,
            events=core.events,
            metrics=core.metrics,
            clock=core.clock,
            may_evict=core.config.section(SickGpusSettings).evict,
            every_seconds=core.config.reconcile.interval,
        )

    def rounds(self) -> Iterable[Round]:
        """Return the one that reports sick GPUs."""
        return (Round(name=self.name, work=self.round, every_seconds=self.every_seconds),)

    async def round(self) -> None:
        """Tell what is new, and evict at most one pod."""
        await in_short_turns(self.state.refreshing())
        found = list(stricken_pods(self.state))
        self._tell(found)
        if self.may_evict:
            asking = (stricken for stricken in found if stricken.pod.asks_for_eviction and stricken.pod.is_alive)
            await self._evict_next([stricken for stricken in asking if stricken.is_certain])

    def _tell(self, found: list[Stricken]) -> None:
        told = self._told if self._told is not None else frozenset(self._old_cases(found))
        recorded = set[Case]()
        for each in found:
            news = tuple(gpu for gpu in each.gpus if (each.pod.uid, gpu.uuid, gpu.since) not in told)
            if news and self._tell_of(stricken := replace(each, gpus=news)):
                recorded.update(_cases([stricken]))
        self._told = told.intersection(_cases(found)) | recorded

    def _old_cases(self, found: list[Stricken]) -> Iterator[Case]:
        now = self.clock().wall
        return (case for case in _cases(found) if now - case[2] > TOLD_SECONDS)

    def _tell_of(self, news: Stricken) -> bool:
        """Tell a pod and its group; returns whether all events are queued, else the next round tells them again."""
        fate = STAYS if not news.pod.asks_for_eviction else GOES if self.may_evict else MAY_NOT_GO
        of_pod = events.gpu_sick(_named(news.pod), news, fate)
        of_group = [events.member_sick(_named(other), news) for other in companions(self.state, news.pod)]
        if not all(self.events.record(event) for event in (of_pod, *of_group)):
            return False
        gpus = [gpu.uuid for gpu in news.gpus]
        log.warning("a pod holds sick GPUs", pod="/".join(news.pod.key), uid=news.pod.uid, node=news.node, gpus=gpus)
        return True

    async def _evict_next(self, asking: list[Stricken]) -> None:
        """Try the one that has waited longest; a refusal costs no other pod its turn."""
        self._evictions.keep_only({each.pod.uid for each in asking})
        now = self.clock().monotonic
        due = [each for each in asking if self._evictions.may_begin(each.pod.uid, now)]
        if not due or now < self._next_eviction:
            return
        first = min(due, key=lambda each: self._evictions.not_before(each.pod.uid))
        answer, why = await evict(self.send, _named(first.pod))
        self.metrics.count(EVICTIONS, answer)
        self._take_note(first, answer, why, self.clock().monotonic)

    def _take_note(self, found: Stricken, answer: Answer, why: str, now: float) -> None:
        uid, pod = found.pod.uid, "/".join(found.pod.key)
        log.warning("asked for an eviction", pod=pod, uid=uid, node=found.node, answer=str(answer), why=why)
        self._evictions.failed(uid, now, found.pod.key[0])
        if is_last := answer is Answer.REFUSED or self._evictions.failures(uid) >= TRIES:
            self._evictions.give_up(uid, found.pod.key[0])
        if answer is Answer.EVICTED:
            self._next_eviction = now + PACE_SECONDS
            self.events.record(events.evicted(_named(found.pod), found))
        elif answer is not Answer.GONE:
            rest = "it is not tried again" if is_last else "it is tried again"
            self.events.record(events.not_evicted(_named(found.pod), f"{why}; {rest}"))


def _cases(found: list[Stricken]) -> Iterator[Case]:
    return ((each.pod.uid, gpu.uuid, gpu.since) for each in found for gpu in each.gpus)


def _named(pod: GpuPod) -> PodName:
    return PodName(*pod.key, pod.uid)
