"""What nodes have in common that filter and prioritize treat alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

from extender.cluster.openness import UNKNOWN_GPUS
from topology.placement.forecast import forecast
from topology.placement.plan import plan
from topology.placement.sharing import less_room
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request import GpuRequest
from topology.room import Appetite, PodKind, Room

CPU_STEP_MILLI = 4000
"""Finer differences do not make another shape."""


def in_steps(cpu_milli: int) -> int:
    """Return idle CPU in whole steps, rounded up: GPUs that have all the CPU they need must not seem to lack some.

    >>> in_steps(10_000), in_steps(8_000)
    (12000, 8000)
    """
    return -(-cpu_milli // CPU_STEP_MILLI) * CPU_STEP_MILLI


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides a verdict: to filter and prioritize, nodes of one shape are one node."""

    topology_class: TopologyClass | None
    free: int
    """Mask over positions."""
    closed: str | None = None
    """Why no GPU of the node may be given away."""
    hidden: int = 0
    """How many of the free GPUs are held by pods that bypassed us; which ones is not known yet."""
    observed: bool = False
    """Whether NVIDIA's device plugin chooses the GPUs, and not we."""
    cpu_milli: int | None = None
    """CPU that nobody has asked for, `in_steps`; `None` where that is not known."""

    def plan(self, wish: GpuRequest) -> Placement | Rejection:
        """Return the best placement on the free GPUs, or why there is none; memoised by the class."""
        if self.closed is not None or self.topology_class is None:
            return Rejection(Reason.CLOSED, self.closed or "no GPU topology is published")
        if self.hidden:
            return self._plan_around(wish, self.topology_class)
        return (forecast if self.observed else plan)(self.topology_class, self.free, wish)

    def room(self, wish: GpuRequest) -> int:
        """Return how many pods with this wish fit one after the other, each planned beside those before it."""
        shape, pods = self, 0
        while isinstance(found := shape.plan(wish), Placement) and found.gpus:
            shape, pods = replace(shape, free=shape.free & ~sum(1 << position for position in found.gpus)), pods + 1
        return pods

    def weigh(self, verdict: Placement | Rejection, kind: PodKind, appetite: Appetite | None) -> Placement | Rejection:
        """Return the verdict with the CPU counted that would be left to the other GPUs."""
        if appetite is None or self.cpu_milli is None or self.topology_class is None or isinstance(verdict, Rejection):
            return verdict
        taken = sum(1 << position for position in verdict.gpus)
        room = Room.of_whole(len(self.topology_class.node), self.free | taken, self.cpu_milli)
        return less_room(verdict, self.topology_class.weights.foresight, room, kind, appetite)

    def _plan_around(self, wish: GpuRequest, topology_class: TopologyClass) -> Placement | Rejection:
        """Plan as if any of the free GPUs could be one of the hidden ones: the kubelet may have to give others.

        Enough must be left whichever they are, and nothing can be promised of the set but its size.
        """
        if wish.required is not None or wish.min_bandwidth_gb_per_s is not None:
            return Rejection(Reason.CLOSED, UNKNOWN_GPUS)
        with_hidden = plan(topology_class, self.free, replace(wish, gpus=wish.gpus + self.hidden))
        if isinstance(with_hidden, Rejection):
            return Rejection(Reason.TOO_FEW_FREE, f"too few GPUs are free: {UNKNOWN_GPUS}", resolvable=True)
        return plan(topology_class, self.free, wish)
