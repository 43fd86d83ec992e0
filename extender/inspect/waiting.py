"""Pods that wait: for how long, and what filter said to them last."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, PodInfo, pod_info
from extender.inspect.other_schedulers import scheduler_problem
from extender.inspect.rows import row
from extender.kit.clock import Instant


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
    scheduler_problem: str | None = None
    """That it waits for a scheduler which does not ask us."""


def waiting_pods(state: ClusterState, pods: Iterable[GpuPod], now: Instant) -> list[WaitingPod]:
    """Return what there is to say of some pods that wait, without those that cannot be shown."""
    shown = (row("/".join(pod.key), partial(waiting_pod, state, pod, now), None) for pod in pods)
    return [pod for pod in shown if pod]


def waiting_pod(state: ClusterState, pod: GpuPod, now: Instant) -> WaitingPod:
    """Return what there is to say of a pod that waits, without asking any node."""
    created, refusal = pod.pod.metadata.creation_timestamp, state.memory.refusals.of(pod.uid)
    seconds = now.age_seconds(created)
    return WaitingPod(
        pod=pod_info(state, pod),
        since=datetime.fromtimestamp(now.wall - seconds, UTC) if created else None,
        seconds=seconds,
        reasons=tuple(sorted(refusal.reasons)) if refusal else (),
        is_node_asked_for=pod.uid in state.indexes.stand_ins.by_pod(),
        scheduler_problem=scheduler_problem(state, pod.pod),
    )
