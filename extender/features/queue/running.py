"""What pods hold and will give back: what a reservation rests on. No I/O."""

from __future__ import annotations

from typing import Final

from extender.cluster.given_back import given_back, held_alone
from extender.cluster.objects.gpu_pods import GpuPod, expected_seconds_of
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.planning.reservations import Running
from topology.effort import Search

LOOKED_AT_ONCE: Final = 128
"""Pods, and nodes, in one step: one or two milliseconds."""


def running_pods(state: ClusterState, now: Instant) -> Search[list[Running]]:
    """Return what pods hold and others may have after them."""
    running, looked_at = list[Running](), 0
    for view in [*state.views.values()]:
        if looked_at >= LOOKED_AT_ONCE:
            looked_at = 0
            yield
        looked_at += 1
        if view.shape.closed is not None:
            continue
        held_by = held_alone(view)
        looked_at += len(held_by)
        for owner, held in held_by.items():
            pod = state.pods.get(owner) if isinstance(owner, str) else None
            if back := given_back(view, held):
                running.append(Running(view.name, back, _ends_at(pod, now)))
    return running


def _ends_at(pod: GpuPod | None, now: Instant) -> float | None:
    """Return when a pod is expected to end, in monotonic seconds: never in the past, and only of one that has started."""
    seconds = expected_seconds_of(pod.pod) if pod else None
    if pod is None or seconds is None or pod.pod.status.start_time is None:
        return None
    return now.monotonic + max(0.0, seconds - now.age_seconds(pod.pod.status.start_time))
