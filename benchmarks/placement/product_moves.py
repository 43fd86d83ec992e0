"""The product where up to two pods are moved for a job that finds no place, though enough GPUs are free.

Only jobs of one pod move. A moved job loses what it did since it began or was moved last, at most its restart cost.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import MadeRoom, Move, RunningJob
from benchmarks.placement.product import uid_of
from benchmarks.placement.product_with_planner import GputopoWithPlanner
from extender.cluster.candidates.holds import Held
from extender.planning.moves import MOST_MOVES, MovablePod, plan_moves
from extender.planning.planned_nodes import PlannedNodes
from topology.effort import finish
from topology.value.score import Weights


class GputopoMoves(GputopoWithPlanner):
    """The extender, and a planner that makes room."""

    def __init__(
        self, cluster: Cluster, weights: Weights, restart_s: float, worth_s: float, *, required: bool = False
    ) -> None:
        """Start with an empty cluster.

        Args:
            cluster: All nodes.
            weights: Of the product's measure.
            restart_s: What a moved job loses at most.
            worth_s: For how long a job would wait without moves; moves cost less than its GPUs for that time.
            required: See `Gputopo`.

        """
        super().__init__(cluster, weights, required=required)
        self._restart_s = restart_s
        self._worth_s = worth_s

    def make_room(self, job: Job, running: Iterable[RunningJob], now_s: float) -> MadeRoom | None:
        """Return the cheapest moves that make room, if they cost less than it is worth that the job starts now."""
        if len(job.pods) != 1 or job.pods[0].shares or job.whole_gpus > self.cluster.free_gpus:
            return None
        single = {uid_of(candidate.job, 0): candidate for candidate in self._promising(job, running)}
        if not single:
            return None
        waiting, *others = self.pending([job, *(candidate.job for candidate in single.values())])
        movable = []
        for wanted in others:
            candidate = single[wanted.pod.metadata.uid]
            allotment, cost = candidate.placed[0], candidate.lost_s(now_s, self._restart_s) * wanted.gpus
            movable.append(MovablePod(wanted, self._names[allotment.node], Held(allotment.mask), cost))
        plan = finish(plan_moves(PlannedNodes(self, {}), waiting, movable, job.gpus * self._worth_s))
        if plan is None:
            return None
        moves = (
            Move(single[pod.wanted.pod.metadata.uid], (self.allotment(place),), pod.cost_gpu_seconds / pod.wanted.gpus)
            for pod, place in plan.moves
        )
        return MadeRoom((self.allotment(plan.targets[0]),), tuple(moves))

    def _promising(self, job: Job, running: Iterable[RunningJob]) -> Iterable[RunningJob]:
        """Return smaller jobs of nodes that could have enough free GPUs; the planner would find nothing on the others."""
        by_node = dict[int, list[RunningJob]]()
        for candidate in running:
            if candidate.is_single and candidate.job.gpus < job.gpus:
                by_node.setdefault(candidate.placed[0].node, []).append(candidate)
        for node, others in by_node.items():
            largest = sorted((candidate.job.gpus for candidate in others), reverse=True)[:MOST_MOVES]
            if self.cluster.nodes[node].free_gpus + sum(largest) >= job.gpus:
                yield from others
