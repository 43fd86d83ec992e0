"""The product as a policy: the extender's own index of nodes by shape and the one function that decides, called and not copied.

A pod meets what it would meet in a cluster: kube-scheduler's own filters (CPU, memory, GPU model) first, then the extender's
order, whose first node has the only 10, then the plan on that node.
"""

from __future__ import annotations

from functools import cache

from benchmarks.placement.cluster import Allotment, Cluster
from benchmarks.placement.jobs import Job, Pod
from benchmarks.placement.policy import PodByPod
from extender.cluster.node_view import Shape
from extender.cluster.shape_index import ShapeIndex
from topology.links import Affinity
from topology.market import finish
from topology.placement import Placement, TopologyClass, TopologyClasses
from topology.request import Communication, GpuRequest
from topology.value import Weights


class SharesUnsupported(Exception):
    """The decision core does not know shares of a GPU yet."""


@cache
def _classes(weights: Weights) -> TopologyClasses:
    """Return the plans of this process; they are remembered from run to run, as in an extender that stays up."""
    return TopologyClasses(weights)


class Gputopo(PodByPod):
    """The extender in front of a scheduler that does what it says."""

    def __init__(self, cluster: Cluster, weights: Weights = Weights()) -> None:  # noqa: B008 - a frozen value
        super().__init__(cluster)
        classes = _classes(weights)
        self._classes: list[TopologyClass] = [classes.of(node.server.topology) for node in cluster.nodes]
        for unappraised in {each for each in self._classes if each.appraised != weights}:
            finish(unappraised.appraise(weights))
        width = len(str(len(cluster.nodes)))
        self._names = [f"{node.index:0{width}}" for node in cluster.nodes]
        self._all = frozenset(self._names)
        self._shapes = ShapeIndex()
        self._read = len(cluster.journal)
        for node in cluster.nodes:
            self._put(node.index)

    def choose(self, pod: Pod, job: Job) -> Allotment | None:
        """Return the place of one pod."""
        if pod.shares:
            raise SharesUnsupported("gputopo places whole GPUs; this workload has shares of GPUs")
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
        self._shapes.put(self._names[index], Shape(self._classes[index], self.cluster.nodes[index].free))


def wish_of(pod: Pod, job: Job) -> GpuRequest:
    """Return what the pod's annotations and resources say to the extender."""
    many = pod.gpus > 1
    return GpuRequest(
        pod.gpus,
        preferred=Affinity.NVLINK if many else None,
        communication=job.communication if many else Communication.NONE,
    )
