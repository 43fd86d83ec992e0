"""Estimates the queue from the cluster as its annotations tell it, where no extender is asked. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from extender.cluster.state import ClusterState
from extender.features.queue.listing import QueueStanding
from extender.features.queue.running import running_pods
from extender.features.queue.waiting import read_queue, reasons_of
from extender.kit.clock import Instant
from extender.planning.order import FairOrder
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.planner import PlanContext, plan_units
from extender.planning.queue import NodesOfCluster, PlacesOfUnits, on_their_way
from extender.planning.reservations import Reservation
from topology.effort import finish


@dataclass(frozen=True, slots=True)
class QueueEstimate:
    """What a planner would do now, with equal weights of all namespaces."""

    standings: tuple[QueueStanding, ...]
    """In the order in which pods are served."""
    reservation: Reservation | None


def estimate(state: ClusterState, now: Instant) -> QueueEstimate:
    """Return what a planner would do now; it takes as long as a plan."""
    queue, waiting = finish(read_queue(state, now, ())), state.indexes.gates.queued
    order = FairOrder(queue.units, state.indexes.use.held, {})
    context = PlanContext(now.monotonic, PlacesOfUnits(state), lambda: finish(running_pods(state, now)))
    nodes = PlannedNodes(NodesOfCluster(state), on_their_way(state, now))
    plan = finish(plan_units(nodes, order, context, order.charge))
    planned = [
        QueueStanding.planned(waiting[assignment.pod.metadata.uid], assignment.node)
        for start in plan.starts
        for assignment in start.assignments
    ]
    reasons = reasons_of(queue, plan)
    not_planned = [QueueStanding.not_planned(waiting[uid], reason) for uid, reason in reasons.items()]
    return QueueEstimate((*planned, *not_planned), plan.reservation)
