"""BestFit: the node with the least left after the pod, CPU and GPU weighed alike; a share goes to the fullest GPU with room.

Source: hkust-adsl/kubernetes-scheduler-simulator (FGD, ATC'23), `best_fit_score.go`: 100 × (1 − ½·CPU left/128 cores −
½·GPU left/8), cut to a whole number. Its later stretching to 0..100 keeps the order. No known deviation.
"""

from __future__ import annotations

import numpy as np

from benchmarks.placement.columns import Ints
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.scoring import ScorePlugin

MAX_CPU_MILLI = 128_000
MAX_GPU_MILLI = 8_000


class BestFit(ScorePlugin):
    """The tightest node."""

    def scores(self, pod: PodSize) -> Ints:
        """Return 0..100."""
        columns = self.columns
        cpu_left = (columns.cpu_milli - pod.cpu_milli) / MAX_CPU_MILLI
        gpu_left = (columns.idle_milli - pod.gpus * pod.gpu_milli) / MAX_GPU_MILLI
        return ((1.0 - (0.5 * cpu_left + 0.5 * gpu_left)) * 100).astype(np.int64)
