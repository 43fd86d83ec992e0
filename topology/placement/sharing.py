"""What a placement leaves of a node beside its links, and the GPU of a pod that shares one, where that loss decides alone."""

from __future__ import annotations

from dataclasses import replace

from topology.placement.plan import plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import WHOLE_GPU_MILLI, DemandProfile, FreeCapacity, PodKind

FRAGMENTED_GPU = 500.0
"""What one fragmented GPU counts in the unit of free sets, where the last free GPU of a machine counts 1 to 4: capacity
that nobody can use is lost for good, a broken island until its pods end."""


def less_fragmentation(
    verdict: Placement, pods_to_come: float, capacity: FreeCapacity, kind: PodKind, profile: DemandProfile
) -> Placement:
    """Return the placement with what the pods to come lose to fragmentation counted in its score; `pods_to_come` is λ."""
    lost = profile.value(capacity) - profile.value(capacity.without(kind, verdict.gpus))
    score = verdict.score - pods_to_come * FRAGMENTED_GPU * lost
    return replace(verdict, score=score, value_lost=(verdict.value_lost or 0.0) + FRAGMENTED_GPU * lost)


def share(
    topology_class: TopologyClass, capacity: FreeCapacity, kind: PodKind, profile: DemandProfile
) -> Placement | Rejection:
    """Take the GPU whose share the others miss least: one that is shared already, or the one that links miss least."""
    candidates = {
        milli: position for position, milli in reversed([*enumerate(capacity.gpu_milli)]) if milli >= kind.gpu_milli
    }
    if not candidates:
        return Rejection(
            Reason.TOO_FEW_FREE, "no GPU has so large a share free", remedy="wait or ask for less", resolvable=True
        )
    before = profile.value(capacity)
    losses: dict[int, float] = {}
    for milli, lowest in candidates.items():
        position, lost = lowest, 0.0
        if milli == WHOLE_GPU_MILLI:
            position, lost = _least_missed(topology_class, capacity.free)
        losses[position] = lost + FRAGMENTED_GPU * (before - profile.value(capacity.without(kind, (position,))))
    best = min(losses, key=lambda position: (round(losses[position], 9), position))
    return Placement((best,), None, None, -topology_class.weights.pods_to_come * losses[best], losses[best])


def _least_missed(topology_class: TopologyClass, free: int) -> tuple[int, float]:
    """Return the free GPU that links miss least, and how much."""
    single = plan(topology_class, free, GpuRequest.plain(1))
    assert isinstance(single, Placement), "a GPU is free"
    (position,) = single.gpus
    return position, topology_class.value_lost(free, 1 << position)
