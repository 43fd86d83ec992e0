"""The decision where GPUs may be shared and CPU counts: the plan of the links, weighed with the room that is left.

Whole GPUs are chosen by `placement.plan` and nobody else; of a pod that shares a GPU the loss decides alone.
"""

from __future__ import annotations

from dataclasses import replace

from topology.placement.plan import plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request import Communication, GpuRequest
from topology.room import WHOLE_GPU_MILLI, Appetite, PodKind, Room

GPU_OF_ROOM = 500.0
"""What one GPU's worth of room counts in the unit of free sets, where the last free GPU of a machine counts 1 to 4: capacity
that nobody can use is lost for good, a broken island until its pods end."""

_SINGLE = GpuRequest(1, communication=Communication.NONE)


def plan_in_room(
    topology_class: TopologyClass, room: Room, request: GpuRequest, kind: PodKind, appetite: Appetite
) -> Placement | Rejection:
    """Return the best placement on what is left of the node, or why there is none.

    Args:
        topology_class: The node's wires.
        room: What is free; CPU that does not suffice is for kube-scheduler to see.
        request: The wish, for whole GPUs; of one that shares a GPU only the GPU itself counts.
        kind: What the pod takes.
        appetite: The pods to come.

    """
    if kind.shares:
        return _shared(topology_class, room, kind, appetite)
    verdict = plan(topology_class, room.free, request)
    if isinstance(verdict, Rejection):
        return verdict
    return less_room(verdict, topology_class.weights.foresight, room, kind, appetite)


def less_room(verdict: Placement, foresight: float, room: Room, kind: PodKind, appetite: Appetite) -> Placement:
    """Return the placement with what the pods to come lose of the room counted in its score."""
    lost = appetite.value(room) - appetite.value(room.without(kind, verdict.gpus))
    return replace(verdict, score=verdict.score - foresight * GPU_OF_ROOM * lost)


def _shared(topology_class: TopologyClass, room: Room, kind: PodKind, appetite: Appetite) -> Placement | Rejection:
    """Take the GPU whose share the others miss least: one that is shared already, or the one that links miss least."""
    candidates = {
        milli: position for position, milli in reversed([*enumerate(room.gpu_milli)]) if milli >= kind.gpu_milli
    }
    if not candidates:
        return Rejection(Reason.TOO_FEW_FREE, "no GPU has so large a share free", resolvable=True)
    before = appetite.value(room)
    losses: dict[int, float] = {}
    for milli, lowest in candidates.items():
        position, lost = lowest, 0.0
        if milli == WHOLE_GPU_MILLI:
            position, lost = _least_missed(topology_class, room.free)
        losses[position] = lost + GPU_OF_ROOM * (before - appetite.value(room.without(kind, (position,))))
    best = min(losses, key=lambda position: (round(losses[position], 9), position))
    return Placement((best,), None, None, -topology_class.weights.foresight * losses[best])


def _least_missed(topology_class: TopologyClass, free: int) -> tuple[int, float]:
    """Return the free GPU that links miss least, and how much."""
    single = plan(topology_class, free, _SINGLE)
    assert isinstance(single, Placement), "a GPU is free"
    (position,) = single.gpus
    return position, topology_class.value_lost(free, 1 << position)
