"""The nodes as they will be when all that is planned has come true."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from typing import Final, Protocol

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.candidates.shape_index import Key, ShapeIndex
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.quantities import cpu_milli, memory_bytes
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

LOOKED_AT: Final = 500
"""Nodes, best first, before a pod is left to kube-scheduler, which looks at all of them side by side."""


@dataclass(frozen=True, slots=True)
class HostDemand:
    """What pods take of a node besides GPUs."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    @classmethod
    def of(cls, pod: Pod) -> HostDemand:
        """Read what one pod requests."""
        return cls(cpu_milli(pod), memory_bytes(pod))

    def __add__(self, more: HostDemand) -> HostDemand:
        return HostDemand(self.cpu_milli + more.cpu_milli, self.memory_bytes + more.memory_bytes)


NO_DEMAND: Final = HostDemand()


class Nodes(Protocol):
    """Those that a queue is planned over, as they are now."""

    @property
    def names(self) -> Container[str]:
        """All of them."""
        ...

    @property
    def shapes(self) -> ShapeIndex:
        """The same by shape."""
        ...

    def lets(self, pod: Pod, node: str, demand: HostDemand) -> bool:
        """Whether all but GPUs lets the pod go there; `demand`: its own, and that of the pods that are planned there."""
        ...


class PlannedNodes:
    """Nodes of which GPUs are taken beside all others, which stand where filter finds them; both are read best first."""

    def __init__(self, nodes: Nodes, taken: Mapping[str, Held]) -> None:
        """Begin with GPUs of some nodes that are on their way to somebody."""
        self._nodes, self._names, self._shapes = nodes, nodes.names, nodes.shapes
        self._taken: dict[str, Held] = {}
        self._planned: dict[str, HostDemand] = {}
        self._touched = self._shapes.like()
        for node, held in taken.items():
            if node in self._names:
                self._take(node, held)

    def place(self, pod: Pod, request: GpuRequest, avoided: Collection[str]) -> tuple[str, Placement] | None:
        """Give the pod the best GPUs there are, as filter and prioritize would; `None` where it is not known which."""
        namespace, touched, demand = pod.metadata.namespace, self._touched, HostDemand.of(pod)
        order = self._shapes.order(request, namespace)
        plain = (key for key in order.best_first(self._names) if key[-1] not in self._taken)
        best_first: Iterator[Key] = merge(plain, touched.order(request).best_first(self._taken))
        for *_, name in islice(best_first, LOOKED_AT):
            if name not in avoided and self._nodes.lets(pod, name, demand + self._planned.get(name, NO_DEMAND)):
                index, ordered = (touched, touched.order(request)) if name in self._taken else (self._shapes, order)
                bucket = index.bucket_of(name)
                verdict = ordered.verdicts[bucket.serial] if bucket else None
                if not isinstance(verdict, Placement):
                    return None
                self._take(name, Held.of(verdict, request))
                self._planned[name] = demand + self._planned.get(name, NO_DEMAND)
                return name, verdict
        return None

    def _take(self, name: str, held: Held) -> None:
        bucket = self._shapes.bucket_of(name)
        assert bucket is not None, "each node has a shape"
        taken = self._taken[name] = self._taken.get(name, NOTHING) + held
        shape = bucket.shape
        free = shape.free & ~taken.touched
        shares = shape.shares.beside(taken.gpus, taken.shares)
        self._touched.put(name, replace(shape, free=free, doubtful=shape.doubtful & free, shares=shares))
