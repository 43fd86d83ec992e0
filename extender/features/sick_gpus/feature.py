"""What an extender does for pods whose GPUs fall sick: it tells them and their groups, and evicts those that ask for it.

A pod is told once of each GPU that falls sick. Only a pod that asks for it is evicted, where the configuration allows it, through
the Eviction API: budgets hold. Nobody else is ever ended by us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Final, Self

from extender.cluster.sickness import Stricken, companions, stricken_pods
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.features.sick_gpus import events
from extender.features.sick_gpus.settings import SickGpusSettings
from extender.kit.clock import Clock
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_short_turns
from extender.kubernetes.events import EventRecorder, PodName
from extender.kubernetes.eviction import EvictionOutcome
from extender.kubernetes.evictor import Eviction, Evictor
from extender.kubernetes.rest import Send
from extender.telemetry.metrics import Declaration, Metrics, SeriesKind

EVICTIONS: Final = Declaration(
    "gputopo_evictions",
    "Evictions of pods on sick GPUs, by answer.",
    SeriesKind.COUNTER,
    labels=("answer",),
    values=tuple(product(EvictionOutcome)),
)
TOLD_SECONDS: Final = 3600.0
"""The API server forgets events after that. What is older when an extender starts is no news any more."""
PACE_SECONDS: Final = 10.0
"""Between two evictions: kube-controller-manager's own pace on nodes that are gone."""
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
    _evictor: Evictor = field(init=False)
    _next_eviction: float = 0.0

    def __post_init__(self) -> None:
        """Begin without an eviction."""
        self._evictor = Evictor(self.send, self.events, self.clock)

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
        stricken = list(stricken_pods(self.state))
        self._tell(stricken)
        if self.may_evict:
            asking = (affected for affected in stricken if affected.pod.asks_for_eviction and affected.pod.is_alive)
            await self._evict_next([affected for affected in asking if affected.is_certain])

    def _tell(self, stricken: list[Stricken]) -> None:
        recorded_before = self._told if self._told is not None else frozenset(self._old_cases(stricken))
        recorded = set[Case]()
        for affected in stricken:
            news = tuple(gpu for gpu in affected.gpus if (affected.pod.uid, gpu.uuid, gpu.since) not in recorded_before)
            if news and self._tell_of(newly := replace(affected, gpus=news)):
                recorded.update(_cases([newly]))
        self._told = recorded_before.intersection(_cases(stricken)) | recorded

    def _old_cases(self, stricken: list[Stricken]) -> Iterator[Case]:
        """Yield what was told before; a driver says no time, and the API server keeps one event of a case for an hour."""
        now = self.clock().wall
        return (case for case in _cases(stricken) if case[2] and now - case[2] > TOLD_SECONDS)

    def _tell_of(self, news: Stricken) -> bool:
        """Tell a pod and its group; returns whether all events are queued, else the next round tells them again."""
        fate = STAYS if not news.pod.asks_for_eviction else GOES if self.may_evict else MAY_NOT_GO
        of_pod = events.gpu_sick(PodName.of(news.pod), news, fate)
        of_group = [events.member_sick(PodName.of(member), news) for member in companions(self.state, news.pod)]
        if not all(self.events.record(event) for event in (of_pod, *of_group)):
            return False
        gpus = [gpu.uuid for gpu in news.gpus]
        log.warning("a pod holds sick GPUs", pod="/".join(news.pod.key), uid=news.pod.uid, node=news.node, gpus=gpus)
        return True

    async def _evict_next(self, asking: list[Stricken]) -> None:
        """Try the one that has waited longest; a refusal costs no other pod its turn."""
        by_uid = {affected.pod.uid: affected for affected in asking}
        due = self._evictor.due(by_uid.keys())
        if not due or self.clock().monotonic < self._next_eviction:
            return
        first = by_uid[due[0]]
        pod = PodName.of(first.pod)
        answer = await self._evictor.evict(Eviction(pod, events.evicted(pod, first), partial(events.not_evicted, pod)))
        self.metrics.count(EVICTIONS, answer)
        if answer is EvictionOutcome.EVICTED:
            self._next_eviction = self.clock().monotonic + PACE_SECONDS


def _cases(stricken: list[Stricken]) -> Iterator[Case]:
    return ((affected.pod.uid, gpu.uuid, gpu.since) for affected in stricken for gpu in affected.gpus)
