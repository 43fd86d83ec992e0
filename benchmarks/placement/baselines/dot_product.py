"""DotProduct (Tetris): the node whose free CPU and GPU point least in the direction of the pod's request.

Source: hkust-adsl/kubernetes-scheduler-simulator (FGD, ATC'23), `dot_product_score.go` as its experiments set it up. GPUs
of a node are merged, amounts are over 128 cores and 8 GPUs. The score is 100 × (1 − mean of the products), cut to a whole
number. Shares go to the fullest GPU with room. No known deviation.
"""

from __future__ import annotations

import numpy as np

from benchmarks.placement.baselines.best_fit import MAX_CPU_MILLI, MAX_GPU_MILLI
from benchmarks.placement.columns import Ints
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.scoring import ScorePlugin


class DotProduct(ScorePlugin):
    """The node that is least like the pod."""

    def scores(self, pod: PodSize) -> Ints:
        """Return 0..100."""
        cpu = self.columns.cpu_milli / MAX_CPU_MILLI * (pod.cpu_milli / MAX_CPU_MILLI)
        gpu = self.columns.idle_milli / MAX_GPU_MILLI * (pod.gpus * pod.gpu_milli / MAX_GPU_MILLI)
        return (100.0 * (1.0 - (cpu + gpu) / 2)).astype(np.int64)
