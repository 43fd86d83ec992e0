"""The product where queues are planned ahead: its own plan of the next pods, and one pod after the other for the rest.

Jobs of several pods are groups, which are not planned ahead. What the plan does not look at may refuse a job: it goes the plain
way then, as a nomination that does not come true.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from benchmarks.placement.cluster import Allotment, Cluster
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import Placed
from benchmarks.placement.product import uid_of
from benchmarks.placement.product_with_planner import GputopoWithPlanner
from extender.features.steering.feature import BATCH
from extender.planning.plan import plan_queue
from extender.planning.units import PendingPod
from topology.value.score import Weights


class GputopoAsOne(GputopoWithPlanner):
    """The extender with `steerQueues`, before a scheduler that follows every nomination."""

    def __init__(self, cluster: Cluster, weights: Weights = Weights(), *, required: bool = False) -> None:  # noqa: B008
        super().__init__(cluster, weights, required=required)
        self._pending_pods = dict[str, PendingPod]()
        """UID → what the planner reads of a job that has been planned and has not ended."""

    def place_queue(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Placed]]:
        """Plan the next jobs of the queue, again and again until its end."""
        alone = [job for job in jobs if len(job.pods) == 1 and job.gpus]
        in_vain = set[Hashable]()  # room only shrinks, so more pods of such a kind find none, either
        for first in range(0, len(alone), BATCH):
            batch = alone[first : first + BATCH]
            for job in batch:
                if uid_of(job, 0) not in self._pending_pods:
                    self._meet(job, running=False)
            self._appraise()
            wanted = [pod for pod in self.pending(batch) if pod.kind not in in_vain]
            plan = plan_queue(self, wanted, {})
            assigned = {assignment.pod.metadata.uid for assignment in plan}
            in_vain.update(pod.kind for pod in wanted if pod.pod.metadata.uid not in assigned)
            for assignment in plan:
                job, node = self._planned[assignment.pod.metadata.uid], self._by_name[assignment.node]
                if node.fits(job.pods[0]):
                    self._meet(job, running=True)
                    yield job, (Allotment(node.index, self.gpus_on(node, assignment.placement), job.pods[0]),)

    def ended(self, job: Job) -> None:
        """Take note that a job is gone."""
        super().ended(job)
        self._pending_pods.pop(uid_of(job, 0), None)

    def _pending_of(self, uid: str, job: Job) -> PendingPod:
        if uid not in self._pending_pods:
            self._pending_pods[uid] = super()._pending_of(uid, job)
        return self._pending_pods[uid]
