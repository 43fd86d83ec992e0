"""Gangs, and clusters of a few racks, for tests of the planner."""

from __future__ import annotations

from collections.abc import Sequence

from extender.cluster.objects.kinds import Node
from extender.cluster.state import ClusterState
from extender.planning.gangs import Places, place_unit
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.queue import NodesOfCluster
from extender.planning.units import Assignment, PendingPod, Unit
from tests.extender.builders import node, pod
from topology.effort import finish
from topology.node.links import Affinity
from topology.request.domains import GroupRequest, Level
from topology.request.gpu_request import GpuRequest

RACK = "topology.kubernetes.io/rack"
IN_ONE_RACK = GroupRequest("g", level=Level.RACK, required=True)
NEAR = GroupRequest("g", level=Level.RACK)


def racks(machine_name: str = "rtx-3090-2", cpu: str = "", **nodes: int) -> list[Node]:
    """Return so many nodes of each rack, `r1-0`, `r1-1` and so on."""
    return [
        node(f"{rack}-{number}", machine_name, labels={RACK: rack}, cpu=cpu)
        for rack, count in nodes.items()
        for number in range(count)
    ]


def gang(
    key: str,
    *gpus: int,
    group: GroupRequest | None = NEAR,
    least: int = 0,
    required: Affinity | None = None,
    cpu: str = "",
    namespace: str = "ml",
    since: float = 0.0,
    expected_seconds: float | None = None,
) -> Unit:
    """Return a gang, one member for each number of GPUs; a single one without a group is one pod."""
    members = []
    for number, count in enumerate(gpus):
        request = GpuRequest(count, required=required, preferred=GpuRequest.plain(count).preferred)
        members.append(PendingPod(pod(f"{key}-{number}", count, cpu=cpu), request))
    return Unit(key, namespace, 0, since, tuple(members), least, group if len(gpus) > 1 else None, (), expected_seconds)


def placed(
    state: ClusterState, unit: Unit, nodes: PlannedNodes | None = None, *, enters: bool = False
) -> tuple[Assignment, ...]:
    """Place one unit."""
    return finish(place_unit(nodes or planned_nodes(state), places_of(state), unit, enters=enters))


def planned_nodes(state: ClusterState) -> PlannedNodes:
    """Return the nodes with nothing planned yet."""
    return PlannedNodes(NodesOfCluster(state), {})


def places_of(state: ClusterState) -> Places:
    """Return where all nodes stand."""
    return {name: state.nodes.locations[name] for name in state.views}


def where(assignments: Sequence[Assignment]) -> list[str]:
    """Return the nodes, in order, each as often as it takes a pod."""
    return sorted(assignment.node for assignment in assignments)


def taken(assignments: Sequence[Assignment]) -> list[tuple[str, int]]:
    """Return all GPUs of a plan, by node and position."""
    return [(assignment.node, position) for assignment in assignments for position in assignment.placement.gpus]
