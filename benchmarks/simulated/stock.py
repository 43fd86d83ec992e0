"""Stock scheduling of the same pods: the emptiest node by count, then NVIDIA's device plugin; links are seen by neither.

The node rule is NodeResourcesFit's LeastAllocated with CPU and memory in step with the GPUs; equal nodes go by name (the real
scheduler throws dice). The plugin gets the free GPUs in random order, as from the kubelet: the same orders in each run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random

from benchmarks.simulated.fleet import SimulatedNode
from topology.bandwidth.predict import Bandwidth
from topology.bandwidth.rings import members_of
from topology.node.links import Affinity
from topology.placement.nvidia_best_effort import best_effort
from topology.placement.topology_class import TopologyClass
from topology.request.gpu_request import GpuRequest


@dataclass(frozen=True, slots=True)
class StockPlacement:
    """Where a pod ends up without topology, and what its collectives would get there."""

    node: str
    gpus: tuple[int, ...]
    affinity: Affinity | None
    bandwidth: Bandwidth | None


class StockCluster:
    """A copy of the fleet that only counts."""

    def __init__(self, nodes: Iterable[SimulatedNode]) -> None:
        self._free: dict[str, int] = {}
        self._classes: dict[str, TopologyClass] = {}
        self._orders = Random(0)  # noqa: S311 - a simulation
        for node in nodes:
            self._classes[node.name] = TopologyClass(node.topology)
            self._free[node.name] = (1 << len(node.topology)) - 1 & ~sum(1 << i for i in node.used)

    def place(self, request: GpuRequest) -> StockPlacement | None:
        """Give the pod the next best GPUs by count; only models are looked at, as a node selector would."""
        fitting = [
            name
            for name, free in self._free.items()
            if free.bit_count() >= request.gpus and self._has_model(name, request.models)
        ]
        if not fitting:
            return None
        node = min(fitting, key=lambda name: (-self._free[name].bit_count() / len(self._classes[name].node), name))
        compiled = self._classes[node]
        free = [*members_of(self._free[node])]
        self._orders.shuffle(free)
        gpus = best_effort(compiled.node, free, request.gpus)
        mask = sum(1 << i for i in gpus)
        self._free[node] &= ~mask
        bandwidth, affinity = compiled.predict(mask) if len(gpus) > 1 else (None, None)
        return StockPlacement(node, gpus, affinity, bandwidth)

    def _has_model(self, name: str, globs: tuple[str, ...]) -> bool:
        models = {gpu.model.lower() for gpu in self._classes[name].node.gpus}
        return not globs or any(fnmatchcase(model, glob) for model in models for glob in globs)
