"""What is said to pods that move, and to those that they make room for."""

from __future__ import annotations

from typing import Final

from extender.kubernetes.events import Event, PodName
from extender.kubernetes.evictor import EVICTED
from extender.planning.moves import MovablePod, MovePlan
from extender.planning.promises import PromiseEnd
from extender.planning.units import Assignment
from topology.request.gpu_request import GpuRequest

WAITS: Final = "GPUPodWaitsForMoves"
GIVEN_UP: Final = "GPUPodMovesGivenUp"
_WHY: Final = {
    PromiseEnd.DEADLINE: "it took too long",
    PromiseEnd.CHANGED: "it has changed, or a pod that moves has, or their places are not free any more",
    PromiseEnd.REFUSED: "a pod may not be evicted",
    PromiseEnd.STOOD_BY: "another replica of the extender plans now",
}
"""Of plans that the waiting pod outlives without a place."""


def waits(pod: PodName, plan: MovePlan) -> Event:
    """Say who moves for a pod, or for its gang."""
    count = len(plan.moves)
    pods, cost = "1 pod" if count == 1 else f"{count} pods", minutes(plan.cost_gpu_seconds)
    return Event(pod, WAITS, f"waits for {pods} to move from {', '.join(plan.nodes)}, cost {cost}", "Normal")


def moved(pod: PodName, waiting: PodName, move: MovablePod, place: Assignment) -> Event:
    """Say why a pod is evicted, and where the next pod of its owner goes; the names of pods stay within their namespaces."""
    is_near = waiting.namespace == pod.namespace
    for_whom = f"{waiting.namespace}/{waiting.name}" if is_near else "a pod of another namespace"
    why = f"moved to make room for {for_whom}, cost {minutes(move.cost_gpu_seconds)}"
    reserved = f"{_what(place.request)} of {place.node} are reserved for the next pod of its owner"
    return Event(pod, EVICTED, f"{why}; {reserved}", "Normal")


def given_up(pod: PodName, end: PromiseEnd) -> Event | None:
    """Say why no more pods move for a pod; `None` where it does not matter to it any more."""
    why = _WHY.get(end)
    return Event(pod, GIVEN_UP, f"no more pods move for it: {why}", "Normal", end) if why else None


def minutes(gpu_seconds: float) -> str:
    """Return GPU-seconds in words.

    >>> minutes(725.0), minutes(18.0)
    ('12 GPU-minutes', '0.3 GPU-minutes')
    """
    count = gpu_seconds / 60
    return f"{count:.0f} GPU-minutes" if count >= 1 else f"{count:.1g} GPU-minutes"


def _what(request: GpuRequest) -> str:
    if request.is_share:
        return f"{sum(request.memory_gib)} GiB of GPU memory"
    return "MIG slices" if request.profile else "GPUs"
