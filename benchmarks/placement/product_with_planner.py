"""The product where the extender's planner plans over the simulated nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.product import Gputopo, uid_of
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.objects import kinds
from extender.planning.planned_nodes import HostDemand
from extender.planning.units import Assignment, PendingPod
from topology.value.score import Weights

_MODELS = "models"


class GputopoWithPlanner(Gputopo):
    """The extender, and the nodes as its planner reads them."""

    def __init__(self, cluster: Cluster, weights: Weights = Weights(), *, required: bool = False) -> None:  # noqa: B008
        super().__init__(cluster, weights, required=required)
        self._by_name = {self._names[node.index]: node for node in cluster.nodes}
        self._planned: dict[str, tuple[Job, PodSize]] = {}
        """UID → a pod that is planned just now, and its job."""

    @property
    def names(self) -> Mapping[str, ServerState]:
        """All nodes."""
        return self._by_name

    @property
    def shapes(self) -> ShapeIndex:
        """The same by shape."""
        self._catch_up()
        return self._shapes

    def lets(self, pod: kinds.Pod, node: str, demand: HostDemand, alternative: int) -> bool:
        """Whether the node has the model, the CPU and the memory."""
        server, (_, size) = self._by_name[node], self._planned[pod.metadata.uid]
        has_model = not size.models or server.server.model in size.models
        return has_model and server.cpu_milli >= demand.cpu_milli and server.memory_mib << 20 >= demand.memory_bytes

    def pending(self, jobs: Iterable[Job]) -> list[PendingPod]:
        """Return these jobs of one pod each as the planner reads them; `lets` knows them until the next call."""
        self._planned = {uid_of(job, 0): (job, job.pods[0]) for job in jobs}
        return [self._pending_of(uid) for uid in self._planned]

    def allotment(self, place: Assignment) -> Allotment:
        """Return what a pod gets of the cluster."""
        node, (_, size) = self._by_name[place.node], self._planned[place.pod.metadata.uid]
        return Allotment(node.index, self.gpus_on(node, place.placement), size)

    def _pending_of(self, uid: str) -> PendingPod:
        job, size = self._planned[uid]
        return PendingPod(_pod(uid, size), self.request(size, job))


def _pod(uid: str, size: PodSize) -> kinds.Pod:
    """Return a pod as a plan reads it: its CPU and memory, and the models that it selects."""
    resources = kinds.ResourceRequirements(requests={"cpu": f"{size.cpu_milli}m", "memory": f"{size.memory_mib}Mi"})
    selector = {_MODELS: " ".join(size.models)} if size.models else None
    spec = kinds.PodSpec(containers=[kinds.Container("main", resources)], node_selector=selector)
    return kinds.Pod(kinds.ObjectMeta(uid=uid), spec)
