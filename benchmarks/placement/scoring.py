"""Policies in the form of a kube-scheduler score plugin: an integer for each node, the best one wins, one of equals by a rule.

`TieBreak.NAME` takes the first node. FGD's simulator has a kube-scheduler that is patched to take the smallest name. A
scenario that imitates it deals new names for each seed. `TieBreak.LOT` is what kube-scheduler does.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import StrEnum
from random import Random

import numpy as np

from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.columns import Columns, Ints
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policy import PodByPod, fullest_gpus

UNFIT = -1


class TieBreak(StrEnum):
    """Which of several nodes with the best score is taken."""

    NAME = "name"
    LOT = "lot"


class ScorePlugin(PodByPod):
    """Scores all nodes at once; shares go to the fullest GPU with room unless a plugin says otherwise."""

    def __init__(self, cluster: Cluster, random: Random, ties: TieBreak = TieBreak.NAME) -> None:
        super().__init__(cluster)
        self.columns = Columns(cluster)
        self._random = random
        self._ties = ties

    @abstractmethod
    def scores(self, pod: PodSize) -> Ints:
        """Return a score of 0 or more for each node; those of nodes that do not fit are not looked at."""

    def changed(self, nodes: list[int]) -> None:
        """Take note that these nodes have changed."""

    def gpus_on(self, node: ServerState, pod: PodSize) -> tuple[int, ...]:
        """Return the GPUs for the pod on its node."""
        return fullest_gpus(node, pod)

    def choose(self, pod: PodSize, job: Job) -> Allotment | None:
        """Return the place of one pod; linear in the nodes."""
        nodes = self.columns.catch_up()
        if nodes:
            self.changed(nodes)
        scores = np.where(self.columns.fits(pod), self.scores(pod), UNFIT)
        best = int(scores.argmax())
        if scores[best] == UNFIT:
            return None
        if self._ties is TieBreak.LOT:
            equals = np.flatnonzero(scores == scores[best])
            best = int(equals[self._random.randrange(len(equals))])
        return Allotment(best, self.gpus_on(self.cluster.nodes[best], pod), pod)
