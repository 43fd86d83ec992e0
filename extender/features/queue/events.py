"""What is said to pods of the queue: why they wait, where they are to go, and why they have to end."""

from __future__ import annotations

from typing import Final

from extender.kubernetes.events import Event, PodName
from extender.kubernetes.evictor import EVICTED, NOT_EVICTED

QUEUED: Final = "GPUPodQueued"
PLANNED: Final = "GPUPodPlanned"
STRANDED: Final = "GPUPodStranded"


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
