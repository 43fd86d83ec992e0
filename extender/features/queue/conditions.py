"""Says on pods why they wait in the queue: the condition `gputopo.dev/Planned`, `False` with a reason, and `True` at last.

It is written when the reason changes, one pod at a time, and to each at most once in ten seconds. The message has the
place of that moment. Only the first pods of the queue get one. Pods that are planned within three seconds get none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from typing import Final
from urllib.parse import quote

import msgspec

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.features.queue.listing import QueueStanding
from extender.features.queue.waiting import has_waited
from extender.kit.bounded import Bounded
from extender.kit.clock import Clock, Instant
from extender.kit.fair_table import FairTable
from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import QUEUE, Request, Send
from topology.annotations import keys

FIRST: Final = 256
"""Pods of the queue, in their order, that get a condition."""
REMEMBERED: Final = 10_000
QUIET_SECONDS: Final = 10.0
"""Between two writes to one pod."""
PLANNED: Final = "Planned"
_MAX_CHARACTERS: Final = 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlanCondition:
    """What is to be said on a pod."""

    is_planned: bool
    reason: str
    message: str

    @classmethod
    def of(cls, standing: QueueStanding, place: int | None) -> PlanCondition:
        """Say why a pod waits."""
        where = f"place {place} in gputopo's queue: " if place else ""
        return cls(is_planned=False, reason=_reason(standing.why), message=f"{where}{standing.words}")


@dataclass(slots=True)
class PlanConditions:
    """The conditions of one extender's queue."""

    state: ClusterState
    send: Send
    clock: Clock
    may_write: bool = True
    """Until the API server forbids it."""
    _bound: Bounded[str, str] = field(default_factory=lambda: Bounded(REMEMBERED))
    """UID → node, of pods that say that they wait."""
    _quiet_until: FairTable[str, float] = field(default_factory=lambda: FairTable(REMEMBERED))
    """By UID, in monotonic seconds."""

    def bound(self, uid: str, node: str) -> None:
        """Take note that a pod of the queue is bound: it is to say so if it says that it waits."""
        if (pod := self.state.pods.get(uid)) and pod.waits_for_plan:
            self._bound.put(uid, node)

    async def write_next(self, waiting: Callable[[], Iterable[tuple[QueueStanding, int | None]]]) -> None:
        """Write to one pod whose condition is to change; what is not written is tried again later.

        `waiting` returns the pods without a plan in their order, with their places.
        """
        now = self.clock()
        due = self._next(waiting(), now) if self.may_write else None
        if due is None:
            return
        pod, condition = due
        self._quiet_until.put(pod.uid, pod.key[0], now.monotonic + QUIET_SECONDS)
        try:
            status, _ = await self.send(to_request(pod, condition, now))
        except Unavailable:
            status = 503
        if condition.is_planned and pod.node and (status in (409, 429) or status >= 500):
            self._bound.put(pod.uid, pod.node)
        if status in (401, 403):
            self.may_write = False
            log.warning("conditions of queued pods are not written: this extender may not patch pods/status")

    def _next(
        self, waiting: Iterable[tuple[QueueStanding, int | None]], now: Instant
    ) -> tuple[GpuPod, PlanCondition] | None:
        while bound := next(self._bound.items(), None):
            uid, node = bound
            self._bound.pop(uid)
            pod = self.state.pods.get(uid)
            if pod is None or not pod.waits_for_plan:
                continue
            if self._is_quiet(pod, now.monotonic):
                self._bound.put(uid, node)
                break
            return pod, PlanCondition(is_planned=True, reason=PLANNED, message=f"bound to {node}")
        for standing, place in islice(waiting, FIRST):
            pod = standing.pod
            if pod.waits_for_plan != _reason(standing.why) and self._is_due(pod, now):
                return pod, PlanCondition.of(standing, place)
        return None

    def _is_due(self, pod: GpuPod, now: Instant) -> bool:
        """Whether it may be written to: a write makes another version of the pod, which claims would have to follow."""
        may_be_written = has_waited(pod.pod, now) and not self._is_quiet(pod, now.monotonic)
        return may_be_written and not self.state.may_be_claimed_on(pod.uid)

    def _is_quiet(self, pod: GpuPod, now: float) -> bool:
        return (self._quiet_until.get(pod.uid) or 0.0) > now


@cache
def _reason(why: str) -> str:
    """Return a reason as conditions have them.

    >>> _reason("no-room")
    'NoRoom'
    """
    return "".join(word.capitalize() for word in why.split("-"))


def to_request(pod: GpuPod, condition: PlanCondition, now: Instant) -> Request:
    """Put a condition into the API's words; conditions are merged by their types."""
    metadata = pod.pod.metadata
    moment = datetime.fromtimestamp(int(now.wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    written = {
        "type": keys.PLANNED_CONDITION,
        "status": str(condition.is_planned),
        "reason": condition.reason,
        "message": condition.message[:_MAX_CHARACTERS],
        "lastTransitionTime": moment,
    }
    body = {
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": {"conditions": [written]},
    }
    namespace, name = (quote(text, safe="") for text in pod.key)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status?fieldManager={QUEUE}"
    return Request("PATCH", path, msgspec.json.encode(body), "application/strategic-merge-patch+json")
