"""The cluster as arrays, one entry a node, for policies that score every node for every pod.

numpy is here because a measurement asks for it: benchmarks/RESULTS.md says what the same run takes without.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.jobs import PodSize
from topology.value.fragmentation import WHOLE_GPU_MILLI

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Columns:
    """What is free, per node; `catch_up` takes in what has changed since."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        nodes = cluster.nodes
        width = max(len(node.gpu_milli) for node in nodes)
        self.cpu_milli: Ints = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory_mib: Ints = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self.gpu_milli: Ints = np.zeros((len(nodes), width), dtype=np.int64)
        """By position; 0 where a node has no such GPU."""
        self.gpus: Ints = np.array([len(node.gpu_milli) for node in nodes], dtype=np.int64)
        self.whole: Ints = np.zeros(len(nodes), dtype=np.int64)
        """How many GPUs are wholly free."""
        self.largest_milli: Ints = np.zeros(len(nodes), dtype=np.int64)
        self.idle_milli: Ints = np.zeros(len(nodes), dtype=np.int64)
        """All GPUs of the node together."""
        self.models = sorted({node.server.model for node in nodes})
        self.model: Ints = np.array([self.models.index(node.server.model) for node in nodes], dtype=np.int64)
        self._allowed: dict[tuple[str, ...], Bools] = {}
        self._read = len(cluster.journal)
        for index in range(len(nodes)):
            self._update(index)

    def catch_up(self) -> list[int]:
        """Take in the changes and return the nodes that have changed."""
        journal = self.cluster.journal
        changed = sorted(set(journal[self._read :]))
        self._read = len(journal)
        for index in changed:
            self._update(index)
        return changed

    def fits(self, pod: PodSize) -> Bools:
        """Say for each node whether the pod could go there."""
        fits = (self.cpu_milli >= pod.cpu_milli) & (self.memory_mib >= pod.memory_mib)
        if pod.models:
            fits &= self.allowed(pod.models)
        if pod.shares:
            fits &= self.largest_milli >= pod.gpu_milli
        elif pod.gpus:
            fits &= self.whole >= pod.gpus
        return fits

    def allowed(self, models: tuple[str, ...]) -> Bools:
        """Say for each node whether its GPUs are among the models; all are where none is named."""
        found = self._allowed.get(models)
        if found is None:
            names = np.array([not models or name in models for name in self.models])
            found = self._allowed[models] = names[self.model]
        return found

    def _update(self, index: int) -> None:
        node = self.cluster.nodes[index]
        milli = node.gpu_milli
        self.cpu_milli[index] = node.cpu_milli
        self.memory_mib[index] = node.memory_mib
        self.gpu_milli[index, : len(milli)] = milli
        self.whole[index] = milli.count(WHOLE_GPU_MILLI)
        self.largest_milli[index] = max(milli, default=0)
        self.idle_milli[index] = sum(milli)
