"""Which nodes the next pods of a queue are to get, planned as one.

They are planned in kube-scheduler's order, and once more with the larger pods of each priority first. The second plan
counts if it serves every pod of the first one, and more pods or at more bandwidth. So no pod pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.cluster.candidates.holds import Held
from extender.cluster.objects.gpu_pods import priority_of
from extender.planning.planned_nodes import Nodes, PlannedNodes
from extender.planning.planner import PlanContext, plan_units
from extender.planning.units import Assignment, PendingPod, Unit
from topology.effort import finish
from topology.request.gpu_request import GpuRequest


def plan_queue(nodes: Nodes, queue: Sequence[PendingPod], taken: Mapping[str, Held]) -> list[Assignment]:
    """Return where pods of a queue go, in its order; those for whom nothing is left are not among them.

    Args:
        nodes: Where they may go.
        queue: The pods, in the order in which they are served.
        taken: Node → what is on its way to others there.

    """
    first = _in_order(nodes, queue, taken)
    larger_first = sorted(queue, key=lambda wanted: (-priority_of(wanted.pod), *_smallness(wanted.request)))
    if larger_first == list(queue):
        return _of(queue, first)
    second = _in_order(nodes, larger_first, taken)
    return _of(queue, second if second.keys() >= first.keys() and _worth(second) > _worth(first) else first)


def _in_order(nodes: Nodes, queue: Sequence[PendingPod], taken: Mapping[str, Held]) -> dict[str, Assignment]:
    alone = PlanContext(now=0.0, may_reserve=lambda _: False)
    plan = finish(plan_units(PlannedNodes(nodes, taken), map(Unit.alone, queue), alone))
    return {start.unit.key: assignment for start in plan.starts for assignment in start.assignments}


def _smallness(request: GpuRequest) -> tuple[int, int]:
    return -request.gpus, -sum(request.memory_gib)


def _worth(plan: Mapping[str, Assignment]) -> tuple[int, float]:
    bandwidths = (assignment.placement.bandwidth for assignment in plan.values())
    return len(plan), round(sum(bandwidth.point for bandwidth in bandwidths if bandwidth), 3)


def _of(queue: Sequence[PendingPod], plan: Mapping[str, Assignment]) -> list[Assignment]:
    return [plan[uid] for wanted in queue if (uid := wanted.pod.metadata.uid) in plan]
