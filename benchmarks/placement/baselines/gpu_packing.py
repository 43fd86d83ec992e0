"""GpuPacking: rather a GPU in use than a free one, rather a free one on a node in use than one on an idle node.

Source: hkust-adsl/kubernetes-scheduler-simulator (FGD, ATC'23), `gpu_packing_score.go`. Used GPUs score 100 − (percent
free on them)/10, not below 50. Free GPUs on a used node score 50 − how many, not below 33. An idle node scores 33 − its
GPUs, and pods without GPUs 0. No known deviation.
"""

from __future__ import annotations

import numpy as np

from benchmarks.placement.columns import Ints
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.scoring import ScorePlugin
from topology.value.fragmentation import WHOLE_GPU_MILLI


class GpuPacking(ScorePlugin):
    """The node on which the least is broken into."""

    def scores(self, pod: PodSize) -> Ints:
        """Return 0..100."""
        columns = self.columns
        if not pod.gpus:
            return np.zeros_like(columns.whole)
        idle_node = np.maximum(33 - columns.whole, columns.whole)
        if pod.shares:
            enough = columns.gpu_milli >= pod.gpu_milli
            fullest = np.where(enough, columns.gpu_milli, WHOLE_GPU_MILLI).min(axis=1)
            shared = np.maximum(100 - fullest * 100 // WHOLE_GPU_MILLI // 10, 50)
            used_node = np.where(fullest < WHOLE_GPU_MILLI, shared, 49)
        else:
            used_node = np.full_like(columns.whole, max(50 - pod.gpus, 33))
        return np.where(columns.whole == columns.gpus, idle_node, used_node)
