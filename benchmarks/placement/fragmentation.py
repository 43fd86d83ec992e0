"""FGD's measure of fragmentation: the idle GPU milli of a node that the pods to come are expected to be unable to use.

Source: hkust-adsl/kubernetes-scheduler-simulator (FGD, ATC'23), `pkg/utils/frag.go`. A typical pod may have no GPU, or
the node may not be able to host it by GPUs, CPU or GPU model. Then all that is idle is a fragment. Otherwise a fragment
is what is idle on GPUs with less left than the pod needs of one. Typical pods are the most frequent (CPU, GPUs, milli,
models), 95 % of all, weighed by their frequency. Memory is not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.placement.columns import Ints
from benchmarks.placement.jobs import PodSize

POPULARITY = 0.95
Floats = npt.NDArray[np.float64]


def typical_pods(pods: Iterable[PodSize]) -> list[tuple[PodSize, float]]:
    """Return the most frequent kinds of pods with their shares, which add up to 1."""
    counts = Counter(PodSize(pod.gpus, pod.gpu_milli, pod.cpu_milli, 0, pod.models) for pod in pods)
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda item: (item[1], _rank(item[0])), reverse=True)
    chosen: list[tuple[PodSize, int]] = []
    covered = 0
    for pod, count in ranked:
        if covered >= POPULARITY * total:
            break
        chosen.append((pod, count))
        covered += count
    return [(pod, count / covered) for pod, count in chosen]


def _rank(pod: PodSize) -> tuple[int, int, int, str]:
    return pod.cpu_milli, pod.gpu_milli if pod.gpus else 0, pod.gpus, "|".join(pod.models)


class FragmentationMeasure:
    """The measure for one mix of pods; those that differ by the models they allow only are one row of the arrays."""

    def __init__(self, pods: Sequence[tuple[PodSize, float]], models: Sequence[str]) -> None:
        with_gpus = [(pod, share) for pod, share in pods if pod.gpus]
        kinds = sorted({(pod.gpus, pod.gpu_milli, pod.cpu_milli) for pod, _ in with_gpus})
        self.gpus: Ints = np.array([kind[0] for kind in kinds], dtype=np.int64)
        self.gpu_milli: Ints = np.array([kind[1] for kind in kinds], dtype=np.int64)
        self.cpu_milli: Ints = np.array([kind[2] for kind in kinds], dtype=np.int64)
        self.share: Floats = np.zeros((len(models), len(kinds)))
        """By GPU model: how many of all pods are of the kind and may use it."""
        for pod, share in with_gpus:
            column = kinds.index((pod.gpus, pod.gpu_milli, pod.cpu_milli))
            for row, model in enumerate(models):
                if not pod.models or model in pod.models:
                    self.share[row, column] += share

    def usable(self, gpu_milli: Ints) -> Floats:
        """Return, for each state of a node's GPUs (rows) and each kind, the idle milli that the kind can use, CPU aside."""
        enough = gpu_milli[:, None, :] >= self.gpu_milli[None, :, None]
        hosts = enough.sum(axis=2) >= self.gpus
        usable: Floats = np.where(hosts, (gpu_milli[:, None, :] * enough).sum(axis=2), 0).astype(np.float64)
        return usable

    def of(self, cpu_milli: Ints, gpu_milli: Ints, model: Ints) -> Floats:
        """Return the fragments of nodes in milli-GPU: their free CPU, their GPUs by position (rows), and their model."""
        share = self.share[model] * (cpu_milli[:, None] >= self.cpu_milli)
        fragments: Floats = gpu_milli.sum(axis=1) - (self.usable(gpu_milli) * share).sum(axis=1)
        return fragments
