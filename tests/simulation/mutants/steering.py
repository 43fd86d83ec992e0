"""What must not be made of nominations, each put into the product, and a planner that is wrong about everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from extender.binding import bind as binding
from extender.cluster.candidates.holds import Held
from extender.cluster.objects.kinds import Pod
from extender.planning.queue import NodesOfCluster
from extender.planning.units import Assignment, PendingPod
from tests.simulation.mix import Mix, steered, whole_gpus
from tests.simulation.mutants import seams
from tests.simulation.mutants.mutant import DOUBLE, Mutant
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

_protocol: Any = binding
_claim = _protocol._Bind._claim


def the_same_for_all(nodes: NodesOfCluster, queue: Sequence[PendingPod], taken: Mapping[str, Held]) -> list[Assignment]:
    """Send every pod to the same node for the same GPUs, whether they are free or not."""
    node = min(nodes.names, default=None)
    return [
        Assignment(wanted.pod, wanted.request, node, _lowest(wanted.request)) for wanted in queue if node is not None
    ]


def _lowest(request: GpuRequest) -> Placement:
    if request.is_share:
        return Placement((0,), None, None, 0.0, shares=(0,) * len(request.memory_gib))
    return Placement(tuple(range(request.gpus)), None, None, 0.0)


def claim_unless_nominated(self: Any, view: Any, pod: Pod, record: Any) -> Any:
    """Take a nomination for a claim."""
    if pod.status.nominated_node_name == view.name:
        return pod
    return (yield from _claim(self, view, pod, record))


def none_is_overdue(self: Any, now: float) -> list[Any]:
    """Let nominations stand, whatever comes of them."""
    return []


def _whole_and_steered(mix: Mix) -> Mix:
    return steered(whole_gpus(mix))


STEERING = (
    Mutant("a nomination is a claim", "found here", DOUBLE, {seams.CLAIM: claim_unless_nominated}, _whole_and_steered),
    Mutant("nominations stand for ever", "found here", ("NNN",), {seams.OVERDUE: none_is_overdue}, _whole_and_steered),
)
