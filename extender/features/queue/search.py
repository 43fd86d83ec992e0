"""Searches places for the units that wait, in their order, until enough pods are under way. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from extender.cluster.state import ClusterState
from extender.features.queue.settings import QueueSettings
from extender.features.queue.started import StartedUnits
from extender.features.queue.waiting import QueuedPods
from extender.kit.clock import Instant
from extender.planning.order import FairOrder
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.planner import PlanContext, QueuePlan, plan_units
from extender.planning.queue import NodesOfCluster, on_their_way
from extender.planning.units import Unit
from extender.verbs.preparing import prepare_request
from topology.effort import Allowance, Search


def prepare(state: ClusterState, queue: QueuedPods) -> Search[None]:
    """Decide on all nodes for each request, in slices."""
    allowance = Allowance()
    requests = {
        (member.request, unit.namespace, unit.group is not None) for unit in queue.units for member in unit.members
    }
    for request, namespace, counts in requests:
        yield from prepare_request(state, request, namespace, allowance, counts=counts)


def search(
    state: ClusterState,
    queue: QueuedPods,
    context: PlanContext,
    started: StartedUnits,
    settings: QueueSettings,
    now: Instant,
) -> Search[QueuePlan]:
    """Return the plan for these units, next to those that have started."""
    order = FairOrder(queue.units, state.indexes.use.held + started.held(), settings.weights)
    nodes = PlannedNodes(NodesOfCluster(state), on_their_way(state, now))
    pods = len(started.under_way(now.monotonic))

    def charge(unit: Unit) -> None:
        nonlocal pods
        pods += len(unit.members)
        order.charge(unit)

    def until_enough() -> Iterator[Unit]:
        for unit in order:
            if pods >= settings.ahead:
                return
            yield unit

    return (yield from state.effort.bounded_steps(plan_units(nodes, until_enough(), context, charge)))
