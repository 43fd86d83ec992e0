"""Pods that wait: for how long, and what filter said to them last."""

from __future__ import annotations

from datetime import UTC, datetime

from extender.clock import Instant
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, PodInfo, pod_info


class WaitingPod(Answer):
    """A pod without a node."""

    pod: PodInfo
    since: datetime | None
    """When it was created; `None` where nobody has said."""
    seconds: float
    """How long that is ago."""
    reasons: tuple[str, ...]
    """Of its last refusal, as the metrics count them; empty where this replica has not refused it."""
    is_node_asked_for: bool = False
    """Whether a placeholder asks autoscalers for a node."""


def waiting_pod(state: ClusterState, pod: GpuPod, now: Instant) -> WaitingPod:
    """Return what there is to say of a pod that waits, without asking any node."""
    created, refusal = pod.pod.metadata.creation_timestamp, state.refusals.of(pod.uid)
    seconds = now.age_seconds(created)
    return WaitingPod(
        pod=pod_info(state, pod),
        since=datetime.fromtimestamp(now.wall - seconds, UTC) if created else None,
        seconds=seconds,
        reasons=tuple(sorted(refusal.reasons)) if refusal else (),
        is_node_asked_for=pod.uid in state.placeholders.by_pod(),
    )
