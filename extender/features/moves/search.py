"""Searches a plan that makes room for a pod or a gang and is worth its cost. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import Jobs
from extender.features.moves.limits import NOTHING_UNDER_WAY, MoveLimits, UnderWay
from extender.features.moves.movable import Stays, may_go_together, movable_pods
from extender.features.moves.settings import MovesSettings
from extender.kit.clock import Instant
from extender.planning.gangs import has_room
from extender.planning.moves import MovablePod, MovePlan, plan_room
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.queue import PlacesOfUnits
from extender.planning.units import Unit
from topology.effort import Search

MOST_WAIT_SECONDS: Final = 3600.0
"""How long a pod is taken to wait at most if nobody moves."""


def worthwhile_plan(
    state: ClusterState,
    nodes: PlannedNodes,
    unit: Unit,
    settings: MovesSettings,
    limits: MoveLimits,
    jobs: Jobs,
    now: Instant,
    under_way: UnderWay = NOTHING_UNDER_WAY,
    is_refused: Callable[[str], bool] = lambda _: False,
) -> Search[tuple[MovePlan, float] | None]:
    """Return a plan for a pod or gang of the queue that has no room, and what it is worth in GPU-seconds."""
    places_of = PlacesOfUnits(state)
    if (
        yield from state.effort.bounded_steps(has_room(nodes, places_of, unit))
    ):  # the queue may have looked half a minute ago
        return None
    largest = max(member.request.size for member in unit.members)
    wait = state.indexes.departures.expected_wait_seconds(largest, now.monotonic, settings.usual_wait)
    seconds = min(wait, MOST_WAIT_SECONDS)
    gain = unit.gpus * seconds
    budgets = BudgetsOfPods(state.budgets)

    def why_not(candidate: GpuPod) -> Stays | None:
        # Without our gate, kube-scheduler's first call drops what is held for the next pod.
        if candidate.directed_to is None:
            return Stays.NO_GATE
        if is_refused(candidate.uid):
            return Stays.REFUSED
        return None if limits.may_move(candidate, now, under_way) else Stays.LIMITS

    movable = yield from movable_pods(state, unit.priority, now, settings.patience, budgets, jobs, why_not)

    def may_go(pods: Sequence[MovablePod]) -> bool:
        moving = [moved.wanted.pod for moved in pods]
        return may_go_together(budgets, pods) and limits.may_move_together(
            moving, unit.namespace, now.monotonic, under_way
        )

    moves = plan_room(nodes, places_of, unit, movable.pods, gain, may_go)
    plan = yield from state.effort.bounded_steps(moves)
    return None if plan is None else (plan, plan.gpus * seconds)
