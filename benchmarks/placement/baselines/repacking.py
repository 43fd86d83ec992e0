"""Periodic repacking: kube-scheduler set up to fill nodes, and a descheduler that empties those that are little used.

Source: kubernetes-sigs/descheduler `pkg/framework/plugins/nodeutilization/highnodeutilization.go`, every five minutes as in
its Helm chart. A node is a source if at most a certain part of its GPUs is used. The least used source comes first. Its pods go
one by one to the fullest node that is no source and has room. It asks for no waiting job and no cost.

Known deviations, all in its favour. A pod stays if no node has room for it, as with the evictor's `nodeFit`. It starts at once,
though another pod could take its place. The threshold is 75 % where restarts are free, otherwise 20 %. That is the best of 20, 50
and 75 % for `link-graph` on seeds 1000 to 1005. Only jobs of one pod move, as with the other policies. CPU and memory, which are
used in step with the GPUs, are no criteria.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from benchmarks.placement.baselines.stock import most_allocated
from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.device_plugin import NvidiaPlugin
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policy import Move, NodeThenPlugin, RunningJob, best_by_lot
from topology.value.fragmentation import WHOLE_GPU_MILLI

PERIOD_MINUTES: Final = 5
MOST_USED: Final = 0.2
MOST_USED_IF_FREE: Final = 0.75
"""Of the GPUs of a node that is emptied, where restarts cost something and where they do not."""


class Repacking(NodeThenPlugin):
    """Bin packing, NVIDIA's plugin, and a pass from time to time that empties nodes."""

    def __init__(self, cluster: Cluster, random: Random, restart_s: float, period_s: float) -> None:
        """Start with an empty cluster.

        Args:
            cluster: All nodes.
            random: For nodes that are equally full, and the plugin.
            restart_s: What a moved job loses at most.
            period_s: Between two passes.

        """
        super().__init__(cluster, random, most_allocated, NvidiaPlugin(random))
        self.period_s = period_s
        self._lot = random
        self._restart_s = restart_s
        self._most_used = MOST_USED if restart_s else MOST_USED_IF_FREE

    def repack(self, running: Iterable[RunningJob], now_s: float) -> Sequence[Move]:
        """Return which jobs leave nodes that are little used."""
        used = {node.index: _used(node) for node in self.cluster.nodes}
        sources = [index for index, part in used.items() if part <= self._most_used]
        others = [node for node in self.cluster.nodes if used[node.index] > self._most_used]
        by_node = dict[int, list[RunningJob]]()
        for job in running:
            if job.is_single:
                by_node.setdefault(job.placed[0].node, []).append(job)
        moves = list[Move]()
        for index in sorted(sources, key=used.__getitem__):
            for job in sorted(by_node.get(index, ()), key=lambda job: job.job.number):
                if place := self._place_on(others, job.job.pods[0]):
                    self.cluster.take(place)
                    moves.append(Move(job, (place,), job.lost_s(now_s, self._restart_s)))
        for move in reversed(moves):
            self.cluster.give_back(move.placed[0])
        return moves

    def _place_on(self, nodes: Sequence[ServerState], pod: PodSize) -> Allotment | None:
        fitting = [node for node in nodes if node.fits(pod)]
        if not fitting:
            return None
        node = best_by_lot(fitting, lambda node: most_allocated(node, pod), self._lot)
        return Allotment(node.index, self._gpus(node, pod), pod)


def _used(node: ServerState) -> float:
    whole = len(node.gpu_milli) * WHOLE_GPU_MILLI
    return 1 - sum(node.gpu_milli) / whole
