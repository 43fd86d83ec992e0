"""The product where queues are planned ahead: its own plan of the next pods, and one pod after the other for the rest.

Jobs of several pods are groups, which are not planned ahead. What the plan does not look at may refuse a job: it goes the plain
way then, as a nomination that does not come true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.placement.cluster import Allotment
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import Placed
from benchmarks.placement.product_with_planner import GputopoWithPlanner
from extender.features.steering.feature import BATCH
from extender.planning.plan import plan_queue


class GputopoAsOne(GputopoWithPlanner):
    """The extender with `steerQueues`, before a scheduler that follows every nomination."""

    def place_queue(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Placed]]:
        """Plan the next jobs of the queue, again and again until its end."""
        alone = [job for job in jobs if len(job.pods) == 1 and job.gpus]
        for first in range(0, len(alone), BATCH):
            batch = alone[first : first + BATCH]
            for job in batch:
                self._meet(job, running=False)
            self._appraise()
            for assignment in plan_queue(self, self.pending(batch), {}):
                job, node = self._planned[assignment.pod.metadata.uid], self._by_name[assignment.node]
                if node.fits(job.pods[0]):
                    self._meet(job, running=True)
                    yield job, (Allotment(node.index, self.gpus_on(node, assignment.placement), job.pods[0]),)
