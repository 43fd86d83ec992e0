"""FGD: the node, and the GPU, where the pod adds least to the fragmentation of what is idle.

Source: hkust-adsl/kubernetes-scheduler-simulator (FGD, ATC'23), `fgd_score.go`. The score is 100 × sigmoid((fragments
before − after) / 1000 milli), cut to a whole number. A share takes the GPU with the best such number, the lowest of
equals. Whole GPUs are the lowest free ones.

Its published figures rest on a kube-scheduler that is patched to take the smallest node name among equals (`TieBreak.NAME`); a
stock one throws dice (`TieBreak.LOT`). `levels=10` is what an extender can say: 0..10. Known deviation: sums are added up in
another order, so a number at the very edge of two may be cut differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from benchmarks.placement.cluster import Cluster, ServerState
from benchmarks.placement.columns import Bools, Ints
from benchmarks.placement.fragmentation import Floats, FragmentationMeasure, typical_pods
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policy import fullest_gpus
from benchmarks.placement.scoring import UNFIT, ScorePlugin, TieBreak
from topology.value.fragmentation import WHOLE_GPU_MILLI


class Fgd(ScorePlugin):
    """Fragmentation gradient descent; `pods` are those whose frequencies it knows beforehand.

    The scores of all kinds of pods on a node are computed together when the node has changed, and looked up otherwise.
    """

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        pods: Sequence[PodSize],
        ties: TieBreak = TieBreak.NAME,
        levels: int = 100,
    ) -> None:
        super().__init__(cluster, random, ties)
        self._levels = levels
        self._fragmentation = FragmentationMeasure(typical_pods(pods), self.columns.models)
        kinds = sorted({_kind(pod) for pod in pods})
        self._row = {kind: row for row, kind in enumerate(kinds)}
        self._cpu_milli: Ints = np.array([kind[2] for kind in kinds], dtype=np.int64)
        self._steps = sorted({kind[:2] for kind in kinds})
        """What the pods take of the GPUs: how many, and how much of each."""
        self._step_of: Ints = np.array([self._steps.index(kind[:2]) for kind in kinds], dtype=np.int64)
        self._scores: Ints = np.full((len(kinds), len(cluster.nodes)), UNFIT, dtype=np.int64)
        self._gpu: Ints = np.zeros_like(self._scores)
        self._of_state: dict[tuple[int, int, tuple[int, ...]], tuple[Ints, Ints]] = {}
        self.changed(list(range(len(cluster.nodes))))

    def scores(self, pod: PodSize) -> Ints:
        """Return 0..100, or 0..`levels`."""
        scores: Ints = self._scores[self._row[_kind(pod)]]
        return scores

    def gpus_on(self, node: ServerState, pod: PodSize) -> tuple[int, ...]:
        """Return the GPU whose share leaves the fewest fragments; the lowest free ones for whole GPUs."""
        if not pod.shares:
            return fullest_gpus(node, pod)
        return (int(self._gpu[self._row[_kind(pod)], node.index]),)

    def changed(self, nodes: list[int]) -> None:
        """Score every kind of pod on these nodes."""
        for index in nodes:
            node = self.cluster.nodes[index]
            state = (int(self.columns.model[index]), node.cpu_milli, tuple(node.gpu_milli))
            if state not in self._of_state:
                self._of_state[state] = self._score(*state)
            self._scores[:, index], self._gpu[:, index] = self._of_state[state]

    def _score(self, model: int, cpu_milli: int, gpu_milli: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Return for each kind its score on a node in this state, and the GPU for its share."""
        before = np.array([gpu_milli], dtype=np.int64)
        after, step, gpu = _outcomes(gpu_milli, self._steps)
        if not len(after):
            nothing = np.full(len(self._cpu_milli), UNFIT, dtype=np.int64)
            return nothing, nothing
        cpu_left = cpu_milli - self._cpu_milli
        fragments = self._fragments(model, cpu_left, after)
        now = self._fragments(model, np.array([cpu_milli]), before)[0, 0]
        # Without rounding, a pod that changes nothing would be half a level or just below it, as the sums fall.
        more = np.round(fragments - now, 6)
        scores = (self._levels / (1.0 + np.exp(more / WHOLE_GPU_MILLI))).astype(np.int64)
        possible: Bools = (step[None, :] == self._step_of[:, None]) & (cpu_left[:, None] >= 0)
        scores = np.where(possible, scores, UNFIT)
        best = scores.argmax(axis=1)
        return scores[np.arange(len(scores)), best], gpu[best]

    def _fragments(self, model: int, cpu_milli: Ints, gpu_milli: Ints) -> Floats:
        """Return the fragments for each amount of free CPU (rows) and each state of the GPUs (columns)."""
        typical = self._fragmentation
        share = typical.share[model] * (cpu_milli[:, None] >= typical.cpu_milli)
        fragments: Floats = gpu_milli.sum(axis=1) - share @ typical.usable(gpu_milli).T
        return fragments


def _kind(pod: PodSize) -> tuple[int, int, int]:
    return pod.gpus, pod.gpu_milli, pod.cpu_milli


def _outcomes(gpu_milli: tuple[int, ...], steps: Sequence[tuple[int, int]]) -> tuple[Ints, Ints, Ints]:
    """Return every way to take one of the steps: the GPUs after it (rows), which step it is, and from which GPU a share is.

    Of GPUs with equally much left only the lowest is tried, since the others would end up the same.
    """
    after: list[tuple[int, ...]] = []
    which: list[int] = []
    where: list[int] = []
    for number, (gpus, milli) in enumerate(steps):
        if gpus == 1 and milli < WHOLE_GPU_MILLI:
            for position, left in enumerate(gpu_milli):
                if left >= milli and gpu_milli.index(left) == position:
                    after.append((*gpu_milli[:position], left - milli, *gpu_milli[position + 1 :]))
                    which.append(number)
                    where.append(position)
            continue
        free = [position for position, left in enumerate(gpu_milli) if left == WHOLE_GPU_MILLI][:gpus]
        if len(free) == gpus:
            after.append(tuple(0 if position in free else left for position, left in enumerate(gpu_milli)))
            which.append(number)
            where.append(0)
    width = len(gpu_milli)
    states: Ints = np.array(after, dtype=np.int64).reshape(len(after), width)
    return states, np.array(which, dtype=np.int64), np.array(where, dtype=np.int64)
