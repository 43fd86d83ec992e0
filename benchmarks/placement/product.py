"""The product as a policy: the extender's own index of nodes by shape and the one function that decides, called and not copied.

A pod meets what it would meet in a cluster: kube-scheduler's own filters (CPU, memory, GPU model) first, then the extender's
order, whose first node has the only 10, then the plan on that node. The mix of pods to come is learnt from those that came.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.placement.cluster import Allotment, Cluster
from benchmarks.placement.jobs import Job, Pod
from benchmarks.placement.policy import Placed, PodByPod
from extender.cluster.node_view import Shape
from extender.cluster.shape_index import ShapeIndex
from topology.demand import DRIFT, Demand, drift
from topology.links import Affinity
from topology.market import finish
from topology.placement import Placement, TopologyClass, TopologyClasses
from topology.request import Communication, GpuRequest
from topology.room import PodKind
from topology.value import Weights


class Learning(PodByPod):
    """What both forms of the product do as time goes by: note what jobs ask for, and value free GPUs by it."""

    def __init__(self, cluster: Cluster, weights: Weights) -> None:
        super().__init__(cluster)
        classes = TopologyClasses(weights)
        by_kind = {node.kind: node.server.topology for node in cluster.nodes}
        compiled = {kind: classes.of(topology) for kind, topology in by_kind.items()}
        self.classes: list[TopologyClass] = [compiled[node.kind] for node in cluster.nodes]
        self._weights = weights
        self._demand = Demand(weights.demand)
        self._last_job = -1
        self._look()

    @abstractmethod
    def learnt(self, typical: Sequence[tuple[PodKind, float]]) -> None:
        """Forget what was worked out for another mix of pods."""

    def place(self, job: Job) -> Placed | None:
        """Place a job; one that had to wait is not news when it is tried again."""
        if job.number > self._last_job:
            self._last_job = job.number
            for pod in job.pods:
                self._demand.saw(kind_of(pod))
            if self._demand.is_news():
                self._look()
        return super().place(job)

    def _look(self) -> None:
        sizes, typical = self._demand.look()
        weights = replace(self._weights, demand=sizes)
        for topology_class in set(self.classes):
            known = topology_class.appraised
            if known is None or drift(known.demand, sizes) > DRIFT:
                finish(topology_class.appraise(weights))
        self.learnt(typical)


class Gputopo(Learning):
    """The extender in front of a scheduler that does what it says."""

    def __init__(self, cluster: Cluster, weights: Weights = Weights()) -> None:  # noqa: B008 - a frozen value
        width = len(str(len(cluster.nodes)))
        self._names = [f"{node.index:0{width}}" for node in cluster.nodes]
        self._all = frozenset(self._names)
        super().__init__(cluster, weights)

    def learnt(self, typical: Sequence[tuple[PodKind, float]]) -> None:
        """Put the nodes in order anew."""
        self._shapes = ShapeIndex()
        self._read = len(self.cluster.journal)
        for node in self.cluster.nodes:
            self._put(node.index)

    def choose(self, pod: Pod, job: Job) -> Allotment | None:
        """Return the place of one pod."""
        self._catch_up()
        wish = wish_of(pod, job)
        name = next((key[2] for key in self._shapes.order(wish).best_first(self._open_to(pod))), None)
        if name is None:
            return None
        bucket = self._shapes.bucket_of(name)
        assert bucket is not None, "the order names known nodes only"
        verdict = bucket.shape.plan(wish)
        assert isinstance(verdict, Placement), "the order names nodes that fit"
        return Allotment(int(name), verdict.gpus, pod)

    def _open_to(self, pod: Pod) -> frozenset[str]:
        if not (pod.cpu_milli or pod.memory_mib or pod.models):
            return self._all
        return frozenset(self._names[node.index] for node in self.cluster.nodes if node.fits_beside_gpus(pod))

    def _catch_up(self) -> None:
        journal = self.cluster.journal
        for index in sorted(set(journal[self._read :])):
            self._put(index)
        self._read = len(journal)

    def _put(self, index: int) -> None:
        self._shapes.put(self._names[index], Shape(self.classes[index], self.cluster.nodes[index].free))


def wish_of(pod: Pod, job: Job) -> GpuRequest:
    """Return what the pod's annotations and resources say to the extender."""
    many = pod.gpus > 1
    return GpuRequest(
        pod.gpus,
        preferred=Affinity.NVLINK if many else None,
        communication=job.communication if many else Communication.NONE,
    )


def kind_of(pod: Pod) -> PodKind:
    """Return what the pod takes, as demand counts it."""
    return PodKind(pod.gpus, pod.gpu_milli, pod.cpu_milli, pod.models)
