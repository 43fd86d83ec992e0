"""The product where queues are planned ahead: its own plan of the next pods, and one pod after the other for the rest.

Jobs of several pods are groups, which are not planned ahead. What the plan does not look at may refuse a job: it goes the plain
way then, as a nomination that does not come true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import Placed
from benchmarks.placement.product import Gputopo, uid_of
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.objects import kinds
from extender.features.steering.feature import BATCH
from extender.planning.plan import plan_queue
from extender.planning.planned_nodes import HostDemand
from extender.planning.units import PendingPod
from topology.value.score import Weights

_MODELS = "models"


class GputopoAsOne(Gputopo):
    """The extender with `steerQueues`, before a scheduler that follows every nomination."""

    def __init__(self, cluster: Cluster, weights: Weights = Weights(), *, required: bool = False) -> None:  # noqa: B008
        super().__init__(cluster, weights, required=required)
        self._by_name = {self._names[node.index]: node for node in cluster.nodes}
        self._asked: dict[str, Job] = {}
        """UID → the jobs that are planned just now."""

    @property
    def names(self) -> Mapping[str, ServerState]:
        """All nodes."""
        return self._by_name

    @property
    def shapes(self) -> ShapeIndex:
        """The same by shape."""
        self._catch_up()
        return self._shapes

    def lets(self, pod: kinds.Pod, node: str, demand: HostDemand) -> bool:
        """Whether the node has the model, the CPU and the memory."""
        found, asked = self._by_name[node], self._asked[pod.metadata.uid].pods[0]
        has_model = not asked.models or found.server.model in asked.models
        return has_model and found.cpu_milli >= demand.cpu_milli and found.memory_mib << 20 >= demand.memory_bytes

    def place_queue(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Placed]]:
        """Plan the next jobs of the queue, again and again until its end."""
        alone = [job for job in jobs if len(job.pods) == 1 and job.gpus]
        for first in range(0, len(alone), BATCH):
            batch = alone[first : first + BATCH]
            for job in batch:
                self._meet(job, running=False)
            self._appraise()
            self._asked = {uid_of(job, 0): job for job in batch}
            queue = [PendingPod(_pod(uid, job), self.request(job.pods[0], job)) for uid, job in self._asked.items()]
            for course in plan_queue(self, queue, {}):
                job, node = self._asked[course.pod.metadata.uid], self._by_name[course.node]
                if node.fits(job.pods[0]):
                    self._meet(job, running=True)
                    yield job, (Allotment(node.index, self.gpus_on(node, course.placement), job.pods[0]),)


def _pod(uid: str, job: Job) -> kinds.Pod:
    """Return the job's pod as the plan reads it: its CPU and memory, and the models that it selects."""
    asked = job.pods[0]
    resources = kinds.ResourceRequirements(requests={"cpu": f"{asked.cpu_milli}m", "memory": f"{asked.memory_mib}Mi"})
    selector = {_MODELS: " ".join(asked.models)} if asked.models else None
    spec = kinds.PodSpec(containers=[kinds.Container("main", resources)], node_selector=selector)
    return kinds.Pod(kinds.ObjectMeta(uid=uid), spec)
