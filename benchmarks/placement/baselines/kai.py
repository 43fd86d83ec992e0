"""KAI scheduler with its consolidation action: running jobs are placed again if then the waiting one fits, too.

Source: NVIDIA/KAI-Scheduler `pkg/scheduler/actions/consolidation` and `actions/common/solvers`. Victims are added one at a time,
the newest first, at most 17 of them. After each, all victims of its node are taken away. They and the waiting job are placed
again, the oldest first, by bin packing over GPUs. It counts if all of them have a place. It asks for no links, cost or budget.

Known deviations: one queue and one priority; victims are jobs of one pod, which are all that the scenario has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from benchmarks.placement.baselines.stock import most_allocated
from benchmarks.placement.cluster import Allotment, Cluster
from benchmarks.placement.device_plugin import NvidiaPlugin
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import MadeRoom, Move, NodeThenPlugin, RunningJob

MOST_VICTIMS: Final = 17
"""The default of 16 lets one more pass."""


class KaiConsolidation(NodeThenPlugin):
    """Bin packing, NVIDIA's plugin, and consolidation for a job that finds no place."""

    def __init__(self, cluster: Cluster, random: Random, restart_s: float) -> None:
        """Start with an empty cluster; `restart_s`: what a moved job loses at most."""
        super().__init__(cluster, random, most_allocated, NvidiaPlugin(random))
        self._restart_s = restart_s

    def make_room(self, job: Job, running: Iterable[RunningJob], now_s: float) -> MadeRoom | None:
        """Return the first set of victims that have places, and leave one for the job."""
        if job.whole_gpus > self.cluster.free_gpus or len(job.pods) != 1:
            return None
        single = (other for other in running if other.is_single)
        newest = sorted(single, key=lambda other: (other.job.arrival_s, other.job.number), reverse=True)[:MOST_VICTIMS]
        for count, victim in enumerate(newest, 1):
            node = victim.placed[0].node
            victims = [other for other in reversed(newest[:count]) if other.placed[0].node == node]
            places = self._placed_again([*(other.job for other in victims), job], victims)
            if places:
                *moved, target = places
                moves = (
                    Move(other, (place,), other.lost_s(now_s, self._restart_s))
                    for other, place in zip(victims, moved, strict=True)
                )
                return MadeRoom((target,), tuple(moves))
        return None

    def _placed_again(self, jobs: Sequence[Job], victims: Sequence[RunningJob]) -> list[Allotment]:
        """Return places of all these jobs without the victims, none if one of them has no place."""
        held = [allotment for victim in victims for allotment in victim.placed]
        for allotment in held:
            self.cluster.give_back(allotment)
        taken = list[Allotment]()
        for job in jobs:
            place = self.choose(job.pods[0], job)
            if place is None:
                break
            self.cluster.take(place)
            taken.append(place)
        for allotment in reversed(taken):
            self.cluster.give_back(allotment)
        for allotment in held:
            self.cluster.take(allotment)
        return taken if len(taken) == len(jobs) else []
