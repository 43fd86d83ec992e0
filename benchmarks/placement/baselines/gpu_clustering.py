"""GpuClustering (Gandiva): pods of one kind together; a kind is "a share", "1 GPU", "2 GPUs", and so on.

Source: hkust-adsl/kubernetes-scheduler-simulator (FGD, ATC'23), `gpu_clustering_score.go`. A node scores 75 with pods of
this kind only, 50 with others too, 25 idle, 0 with other kinds only. To that comes 25 × (GPUs in use, of 8), in whole
numbers. Pods without GPUs score 0. No known deviation.
"""

from __future__ import annotations

from random import Random

import numpy as np

from benchmarks.placement.baselines.best_fit import MAX_GPU_MILLI
from benchmarks.placement.cluster import Cluster
from benchmarks.placement.columns import Ints
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.scoring import ScorePlugin, TieBreak

MOST_KINDS = 62
"""Bits of a whole number that stay positive; no node has room for two pods of so many GPUs."""


class GpuClustering(ScorePlugin):
    """The node that runs such pods already."""

    def __init__(self, cluster: Cluster, random: Random, ties: TieBreak = TieBreak.NAME) -> None:
        super().__init__(cluster, random, ties)
        self._kinds: Ints = np.zeros(len(cluster.nodes), dtype=np.int64)
        """Bit 0 for shares, bit n for pods of n GPUs."""
        self.changed(list(range(len(cluster.nodes))))

    def changed(self, nodes: list[int]) -> None:
        """Note the kinds that run on each node."""
        for index in nodes:
            kinds = {_kind(allotment.pod) for allotment in self.cluster.nodes[index].allotments if allotment.pod.gpus}
            self._kinds[index] = sum(1 << kind for kind in kinds)

    def scores(self, pod: PodSize) -> Ints:
        """Return 0..100."""
        if not pod.gpus:
            return np.zeros_like(self._kinds)
        own = 1 << _kind(pod)
        base = np.where(self._kinds == own, 75, np.where(self._kinds & own != 0, 50, np.where(self._kinds == 0, 25, 0)))
        return base + 25 * (MAX_GPU_MILLI - self.columns.idle_milli) // MAX_GPU_MILLI


def _kind(pod: PodSize) -> int:
    return 0 if pod.shares else min(pod.gpus, MOST_KINDS)
