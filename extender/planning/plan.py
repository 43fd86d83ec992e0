"""Which nodes the next pods of a queue are to get, planned as one.

They are planned in kube-scheduler's order, and once more with the larger pods of each priority first. The second plan
counts if it serves every pod of the first one, and more pods or at more bandwidth. So no pod pays for it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from extender.cluster.candidates.holds import Held
from extender.cluster.objects.gpu_pods import priority_of
from extender.cluster.objects.kinds import Pod
from extender.planning.planned_nodes import HostDemand, Nodes, PlannedNodes
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits, and what it asks for now."""

    pod: Pod
    request: GpuRequest
    avoided: Collection[str] = ()
    """Nodes that step back from it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a pod is to go."""

    pod: Pod
    request: GpuRequest
    node: str
    placement: Placement

    @property
    def gpus(self) -> int:
        """What it would get there, as a mask over positions."""
        return sum(1 << position for position in self.placement.gpus)


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
    planned, found, in_vain = PlannedNodes(nodes, taken), dict[str, Assignment](), set[Hashable]()
    for wanted in queue:
        if (alike := _alike(wanted)) in in_vain:
            continue
        place = planned.place(wanted.pod, wanted.request, wanted.avoided)
        if place is not None:
            found[wanted.pod.metadata.uid] = Assignment(wanted.pod, wanted.request, *place)
        elif not wanted.avoided:
            in_vain.add(alike)  # what is left only gets less
    return found


def _alike(wanted: PendingPod) -> Hashable:
    """Return what is equal of pods that fit on the same nodes."""
    spec = wanted.pod.spec
    selected = tuple(sorted((spec.node_selector or {}).items()))
    return wanted.request, selected, tuple(spec.tolerations or ()), HostDemand.of(wanted.pod)


def _smallness(request: GpuRequest) -> tuple[int, int]:
    return -request.gpus, -sum(request.memory_gib)


def _worth(plan: Mapping[str, Assignment]) -> tuple[int, float]:
    bandwidths = (assignment.placement.bandwidth for assignment in plan.values())
    return len(plan), round(sum(bandwidth.point for bandwidth in bandwidths if bandwidth), 3)


def _of(queue: Sequence[PendingPod], plan: Mapping[str, Assignment]) -> list[Assignment]:
    return [plan[uid] for wanted in queue if (uid := wanted.pod.metadata.uid) in plan]
