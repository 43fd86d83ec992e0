"""Random: any node that fits; a share goes to any GPU with room, whole GPUs are the lowest free ones.

Source: hkust-adsl/kubernetes-scheduler-simulator (FGD, ATC'23), `random_score.go` and its GPU selection `random`. No known
deviation.
"""

from __future__ import annotations

from random import Random

import numpy as np

from benchmarks.placement.cluster import Cluster, ServerState
from benchmarks.placement.columns import Ints
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policy import fullest_gpus
from benchmarks.placement.scoring import ScorePlugin, TieBreak


class RandomNode(ScorePlugin):
    """All nodes alike."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster, random, TieBreak.LOT)

    def scores(self, pod: PodSize) -> Ints:
        """Return 0 for all."""
        return np.zeros_like(self.columns.whole)

    def gpus_on(self, node: ServerState, pod: PodSize) -> tuple[int, ...]:
        """Return any GPU with room."""
        if not pod.shares:
            return fullest_gpus(node, pod)
        fitting = [position for position, left in enumerate(node.gpu_milli) if left >= pod.gpu_milli]
        return (self._random.choice(fitting),)
