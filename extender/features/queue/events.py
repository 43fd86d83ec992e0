"""What is said to pods of the queue: why they wait, where they are to go, and why they have to end.

Pods that are planned soon after they came get no event: kube-scheduler's own says where they went.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

from extender.features.queue.listing import QueueStanding
from extender.features.queue.waiting import has_waited
from extender.kit.clock import Instant
from extender.kubernetes.events import Event, PodName
from extender.kubernetes.evictor import EVICTED, NOT_EVICTED
from extender.planning.planner import Start

QUEUED: Final = "GPUPodQueued"
PLANNED: Final = "GPUPodPlanned"
STRANDED: Final = "GPUPodStranded"


def of_waiting(waiting: Iterable[tuple[QueueStanding, int | None]], now: Instant) -> Iterator[Event]:
    """Yield why pods wait, with their places, of those that have waited for a while."""
    for standing, place in waiting:
        if has_waited(standing.pod.pod, now):
            yield queued(PodName.of(standing.pod), place, standing.why, standing.words)


def of_start(start: Start, waiting: Container[str], now: Instant) -> Iterator[Event]:
    """Yield where pods are to go, of those that were `waiting` without a place, by UID, for a while."""
    for assignment in start.assignments:
        metadata = assignment.pod.metadata
        if metadata.uid in waiting and has_waited(assignment.pod, now):
            yield planned(PodName.of_metadata(metadata), assignment.node, len(start.assignments))


def queued(pod: PodName, place: int | None, why: str, words: str) -> Event:
    """Say why a pod is not planned, once for each reason, and its place in the queue at that moment."""
    where = f", place {place}" if place else ""
    return Event(pod, QUEUED, f"waits in gputopo's queue{where}: {words}", "Normal", why)


def planned(pod: PodName, node: str, members: int) -> Event:
    """Say where a pod is to go, and with how many others of its gang."""
    others = f"{members - 1} other{'s' * (members > 2)}"
    gang = f", with {others} of its gang" if members > 1 else ""
    return Event(pod, PLANNED, f"is planned on {node}{gang}", "Normal", node)


def stranded(pod: PodName, node: str) -> Event:
    """Say that a pod can go nowhere any more."""
    return Event(
        pod,
        STRANDED,
        f"is pinned to {node}, which does not exist any more: only a new pod can go elsewhere",
        "Warning",
        node,
    )


def evicted(pod: PodName, why: str) -> Event:
    """Say why a pod had to go."""
    return Event(pod, EVICTED, f"evicted: {why}", "Warning")


def not_evicted(pod: PodName, why: str, obstacle: str, case: str = "") -> Event:
    """Say why a pod should go, and what keeps it there; with a `case`, once."""
    return Event(pod, NOT_EVICTED, f"should be evicted, as {why}; it is not: {obstacle}", "Warning", case)
