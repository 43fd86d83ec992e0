"""Evicts pods for one feature, tells each what came of it, and asks again for what a budget refuses, less and less often."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Clock
from extender.kit.plain_structlog import structlog
from extender.kubernetes.events import Event, EventRecorder, PodName
from extender.kubernetes.eviction import EvictionOutcome, evict
from extender.kubernetes.rest import Send

EVICTED: Final = "GPUPodEvicted"
NOT_EVICTED: Final = "GPUPodNotEvicted"
"""Reasons of events."""
PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
TRIES: Final = 20
"""Of one eviction, more than an hour in all."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Eviction:
    """What is to be asked for, and said of it."""

    pod: PodName
    evicted: Event
    not_evicted: Callable[[str], Event]
    """Is given the reason."""
    version: str = ""
    """The only version of the pod that may be evicted; empty: any."""


@dataclass(slots=True)
class Evictor:
    """The evictions of one feature, and how often each was tried."""

    send: Send
    events: EventRecorder
    clock: Clock
    _attempts: Backoff = field(default_factory=lambda: Backoff(Pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)))
    """By UID; an eviction that was granted counts as well, as the pod needs time to end."""

    def due(self, uids: Collection[str]) -> list[str]:
        """Return those of these pods that may be tried now, the one that has waited longest first; forget all others."""
        self._attempts.keep_only(uids)
        now = self.clock().monotonic
        return sorted((uid for uid in uids if self._attempts.may_begin(uid, now)), key=self._attempts.not_before)

    async def evict(self, eviction: Eviction) -> EvictionOutcome:
        """Ask once, and tell the pod what came of it."""
        pod = eviction.pod
        answer, why = await evict(self.send, pod, eviction.version)
        log.warning(
            "asked for an eviction", pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, answer=str(answer), why=why
        )
        self._attempts.failed(pod.uid, self.clock().monotonic, pod.namespace)
        if is_last := answer is EvictionOutcome.REFUSED or self._attempts.failures(pod.uid) >= TRIES:
            self._attempts.give_up(pod.uid, pod.namespace)
        if answer is EvictionOutcome.EVICTED:
            self.events.record(eviction.evicted)
        elif answer is not EvictionOutcome.GONE:
            rest = "it is not tried again" if is_last else "it is tried again"
            self.events.record(eviction.not_evicted(f"{why}; {rest}"))
        return answer
