"""Searches the cheapest plan that makes room for a pod and is worth its cost. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import Jobs
from extender.features.moves.limits import NOTHING_UNDER_WAY, MoveLimits, UnderWay
from extender.features.moves.movable import BudgetsOfPods, Stays, is_alone, may_go_together, movable_pods
from extender.features.moves.settings import MovesSettings
from extender.kit.clock import Instant
from extender.planning.moves import MovablePod, MovePlan, plan_moves
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.units import PendingPod
from extender.verbs.pod_context import PodContext
from topology.effort import Search
from topology.errors import RequestError

MOST_WAIT_SECONDS: Final = 3600.0
"""How long a pod is taken to wait at most if nobody moves."""


def worthwhile_plan(
    state: ClusterState,
    nodes: PlannedNodes,
    pod: GpuPod,
    settings: MovesSettings,
    limits: MoveLimits,
    jobs: Jobs,
    now: Instant,
    under_way: UnderWay = NOTHING_UNDER_WAY,
) -> Search[tuple[MovePlan, float] | None]:
    """Return a plan for a single pod that waits in the queue, and what it is worth in GPU-seconds."""
    try:
        context = PodContext.read(state, pod.pod, now)
    except RequestError:
        return None
    if not is_alone(context):
        return None
    waiting = PendingPod(pod.pod, context.request, tuple(context.away(state)))
    wait = state.indexes.departures.expected_wait_seconds(waiting.gpus, now.monotonic, settings.usual_wait)
    gain = waiting.gpus * min(wait, MOST_WAIT_SECONDS)
    budgets_of = BudgetsOfPods(state.budgets)

    def why_not(candidate: GpuPod) -> Stays | None:
        # Without our gate, kube-scheduler's first call drops what is held for the next pod.
        if candidate.directed_to is None:
            return Stays.NO_GATE
        return None if limits.may_move(candidate, now, under_way) else Stays.LIMITS

    movable = yield from movable_pods(state, pod, now, settings.patience, budgets_of, jobs, why_not)

    def may_go(pods: Sequence[MovablePod]) -> bool:
        moving = [moved.wanted.pod for moved in pods]
        return may_go_together(budgets_of, pods) and limits.may_move_together(
            moving, pod.key[0], now.monotonic, under_way
        )

    plan = yield from state.effort.bounded_steps(plan_moves(nodes, waiting, movable.pods, gain, may_go))
    return None if plan is None else (plan, gain)
