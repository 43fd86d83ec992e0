"""What a node has free beside its wires: CPU, and what is left of GPUs that pods share; and what that is worth.

A node's free capacity is worth less by its fragments: all idle GPU capacity that future pods could not fill. It is also
worth less by as many GPUs as its CPU does not suffice for, at these pods' CPU per GPU. The links know nothing of either,
and this knows nothing of links: together they are the value of a node.

The measure of fragments is FGD's (Weng et al., ATC'23) but for two things. What pods of a kind would leave of a GPU that
they share is a fragment to them. How many whole GPUs are free together is left to the value of free sets. Unlike FGD it
counts CPU that is scarce before it is gone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from topology.bandwidth.rings import Meter

WHOLE_GPU_MILLI = 1000
MAX_FILLED = 10_000
"""Different GPUs of a node for which a profile remembers what pods fill of them: about a kilobyte each."""
FILLING_STEPS = 2
"""Of one kind on one node."""


@dataclass(frozen=True, slots=True)
class PodKind:
    """What a pod takes of a node beside links."""

    gpus: int
    gpu_milli: int = WHOLE_GPU_MILLI
    """Of each of its GPUs; less than 1000 only of a single one."""
    cpu_milli: int = 0
    models: tuple[str, ...] = ()
    """GPU models that will do, by name or pattern; none named: any."""
    memory_gib: int = 0
    """GiB of its one GPU that it takes, where it is not known how large that is; 0: as `gpu_milli` says."""

    @property
    def shares(self) -> bool:
        """Whether it leaves part of its GPU to others."""
        return self.gpus == 1 and self.gpu_milli < WHOLE_GPU_MILLI


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """What is free on a node."""

    gpu_milli: tuple[int, ...]
    """By position; 1000 is a wholly free GPU, a sick one has 0."""
    cpu_milli: int

    @classmethod
    def of_whole(cls, gpus: int, free: int, cpu_milli: int) -> FreeCapacity:
        """Return the free capacity of a node whose GPUs are free, by mask, or taken as a whole."""
        return cls(tuple([WHOLE_GPU_MILLI * (free >> position & 1) for position in range(gpus)]), cpu_milli)

    @property
    def free(self) -> int:
        """The wholly free GPUs, as a mask over positions."""
        return sum(1 << i for i, milli in enumerate(self.gpu_milli) if milli == WHOLE_GPU_MILLI)

    def without(self, kind: PodKind, gpus: Sequence[int]) -> FreeCapacity:
        """Return what is left beside such a pod on these GPUs."""
        left = [*self.gpu_milli]
        for position in gpus:
            left[position] -= kind.gpu_milli
        return FreeCapacity(tuple(left), self.cpu_milli - kind.cpu_milli)


class DemandProfile:
    """The pods to come, as a node meets them."""

    def __init__(self, kinds: Sequence[tuple[PodKind, float]], wanted: float = 0.0) -> None:
        """Take what comes to the node with its share of all pods that do.

        `wanted` is what an idle GPU is worth because it is one of the node's, in fragmented GPUs.
        """
        self._wanted = wanted
        self._kinds = [(kind, share) for kind, share in kinds if kind.gpus]
        self._sizes_milli = {kind.gpu_milli for kind, _ in self._kinds}
        gpu_milli = sum(share * kind.gpus * kind.gpu_milli for kind, share in self._kinds)
        self._cpu_per_gpu = sum(share * kind.cpu_milli for kind, share in self._kinds) / gpu_milli if gpu_milli else 0.0
        self._filled_by: dict[tuple[int, ...], tuple[Sequence[float], Sequence[float]]] = {}
        self.meter = Meter()
        """What values have cost that were no look-ups."""

    def value(self, capacity: FreeCapacity) -> float:
        """Return the worth of free capacity in GPUs; linear in the kinds, then a look-up for the same GPUs."""
        idle_milli = sum(capacity.gpu_milli)
        if not idle_milli:
            return 0.0
        needed = self._cpu_per_gpu * idle_milli
        without_cpu = max(0.0, 1.0 - capacity.cpu_milli / needed) * idle_milli if needed else 0.0
        filled_milli = self._filled_milli(capacity) + self._wanted * idle_milli
        return (filled_milli - idle_milli - without_cpu) / WHOLE_GPU_MILLI

    def _filled_milli(self, capacity: FreeCapacity) -> float:
        """Return the idle GPU capacity that pods like one to come can fill, on average."""
        levels = tuple(sorted(filter(None, capacity.gpu_milli)))
        filled = self._filled_by.get(levels)
        if filled is None:
            if len(self._filled_by) >= MAX_FILLED:
                self._filled_by.clear()
            filled = self._filled_by[levels] = self._filled(levels)
        cpu_milli, gpu_milli = filled
        return gpu_milli[bisect_right(cpu_milli, capacity.cpu_milli)]

    def _filled(self, levels: Sequence[int]) -> tuple[Sequence[float], Sequence[float]]:
        """Return amounts of CPU, rising, and what the kinds fill for which that suffices; linear in kinds and GPUs."""
        self.meter.steps += FILLING_STEPS * len(self._kinds)
        fills = {milli: _fills(levels, milli) for milli in self._sizes_milli}
        filling = sorted(_filling(*fills[kind.gpu_milli], kind, share) for kind, share in self._kinds)
        return array("d", [cpu for cpu, _ in filling]), array(
            "d", accumulate((milli for _, milli in filling), initial=0.0)
        )


def _fills(levels: Sequence[int], gpu_milli: int) -> tuple[int, int]:
    """Return how many of the GPUs have room for pods that take so much of one, and what these fill of them."""
    enough = levels[bisect_left(levels, gpu_milli) :]
    return len(enough), sum(milli - milli % gpu_milli for milli in enough)


def _filling(gpus: int, filled_milli: int, kind: PodKind, share: float) -> tuple[float, float]:
    """Return the CPU that the kind needs for as many of its GPUs as are idle, and what it fills of them, times its share.

    That it finds more GPUs is not asked here.
    """
    return kind.cpu_milli * min(1.0, gpus / kind.gpus), share * filled_milli
