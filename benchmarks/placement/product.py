"""The product as a policy: the extender's own values, its index of nodes by shape and the one function that decides.

A pod meets what it would meet in a cluster. First come kube-scheduler's own filters (CPU, memory, GPU model), then the
extender's order, whose first node has the only 10. Last comes the decision on that node. The mix of pods to come is
learnt from those that came. Traces count shares in thousandths of a GPU: where pods share GPUs, each has 1000 GiB for
shares. A job of several pods is a group, and says so; leaf switches are its racks. Its pods come one after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.device_plugin import NvidiaPlugin
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policy import Placed, PodByPod
from extender.cluster.candidates.groups import fitting_for
from extender.cluster.candidates.shape import Shape, in_steps
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.candidates.values import Values
from extender.kit.bounded import Bounded
from topology.node.links import Affinity
from topology.placement.decide import Situation, decide
from topology.placement.group import Progress, narrow
from topology.placement.nvidia_best_effort import Outcome
from topology.placement.shares import NO_SHARES, SharedGpu, Shares
from topology.placement.topology_class import TableKey, TopologyClass
from topology.placement.topology_classes import TopologyClasses
from topology.placement.verdict import Placement, Rejection
from topology.request.domains import GroupRequest, Location
from topology.request.gpu_request import Communication, GpuRequest
from topology.value.coming_back import MANY_PODS
from topology.value.fragmentation import WHOLE_GPU_MILLI, PodKind
from topology.value.opportunity_cost import Table
from topology.value.score import Weights

_TABLES: Bounded[TableKey, Table] = Bounded(256)
"""What machines are worth, for all runs of this process: they begin with the same machines, and meet the same pods."""


class Learning(PodByPod):
    """What both forms of the product do as time goes by: the extender's `Values` meet each pod and follow the mix."""

    def __init__(self, cluster: Cluster, weights: Weights, *, required: bool = False) -> None:
        """Start with an empty cluster; `required`: owners of talkative jobs insist on NVLink, see `request`."""
        super().__init__(cluster)
        self._required = required
        classes = TopologyClasses(weights, tables=_TABLES)
        by_kind = {node.kind: node.server.topology for node in cluster.nodes}
        compiled = {kind: classes.of(topology) for kind, topology in by_kind.items()}
        self.classes: list[TopologyClass] = [compiled[node.kind] for node in cluster.nodes]
        self.values = Values(classes, weights, self.forget_verdicts)
        self._appraise()

    @abstractmethod
    def forget_verdicts(self) -> None:
        """Ask for all plans anew: there are other values, or other typical pods."""

    def request(self, pod: PodSize, job: Job) -> GpuRequest:
        """Return what the pod says to the extender.

        Of owners who insist, a pod that says `heavy` says `required-affinity: nvlink` too, and so waits while that cannot
        be had. Sizes of which no empty machine has an NVLink ring are left out, as everybody can look up.
        """
        said = request_of(pod, job)
        if not self._required or said.gpus < 2 or said.communication is not Communication.HEAVY:
            return said
        insisting = replace(said, required=Affinity.NVLINK)
        empty = ((found, (1 << len(found.node)) - 1) for found in dict.fromkeys(self.classes))
        possible = any(isinstance(decide(Situation(found, free), insisting), Placement) for found, free in empty)
        return insisting if possible else said

    def place(self, job: Job) -> Placed | None:
        """Place a job; one that had to wait is not news when it is tried again."""
        self._meet(job, running=False)
        self._appraise()
        placed = super().place(job)
        if placed is not None:
            self._meet(job, running=True)
        return placed

    def ended(self, job: Job) -> None:
        """Take note that a job is gone."""
        for number in range(len(job.pods)):
            self.values.forget(uid_of(job, number))

    def _meet(self, job: Job, *, running: bool) -> None:
        for number, pod in enumerate(job.pods):
            self.values.meet(uid_of(job, number), kind_of(pod), running=running)

    def _appraise(self) -> None:
        for _ in self.values.appraise():
            pass


class Gputopo(Learning):
    """The extender in front of a scheduler that does what it says."""

    plugin_chooses = False
    """Whether NVIDIA's device plugin chooses the GPUs, and not we."""

    def __init__(
        self,
        cluster: Cluster,
        weights: Weights = Weights(),  # noqa: B008 - a frozen value
        *,
        required: bool = False,
        shared: bool = False,
    ) -> None:
        """Start with an empty cluster; `shared`: pods may share all its GPUs."""
        self._shared = shared
        width = len(str(len(cluster.nodes)))
        self._names = [f"{node.index:0{width}}" for node in cluster.nodes]
        self._locations = {self._names[node.index]: Location(rack=node.server.leaf or None) for node in cluster.nodes}
        self._siblings: list[Location] = []
        self._shapes = ShapeIndex()
        super().__init__(cluster, weights, required=required)
        self._read = len(cluster.journal)
        for node in cluster.nodes:
            self._put(node.index)

    def forget_verdicts(self) -> None:
        """Let the index of nodes ask for all plans anew, with the eyes of the pods that are typical now."""
        self._shapes.forget_verdicts(self.values.typical)

    def place(self, job: Job) -> Placed | None:
        """Place a job, its pods near each other."""
        self._siblings.clear()
        return super().place(job)

    def choose(self, pod: PodSize, job: Job) -> Allotment | None:
        """Return the place of one pod."""
        self._catch_up()
        request = self.request(pod, job)
        names: Container[str] = _OpenTo(pod, self.cluster.nodes)
        if len(job.pods) > 1:
            fitting = frozenset(name for name in self._names if name in names)
            names = self._where_the_group_goes(request, fitting, len(job.pods))
        name = next((name for *_, name in self._shapes.order(request).best_first(names)), None)
        if name is None:
            return None
        self._siblings.append(self._locations[name])
        bucket = self._shapes.bucket_of(name)
        assert bucket is not None, "the order names known nodes only"
        verdict = self._shapes.order(request).verdicts[bucket.serial]
        assert isinstance(verdict, Placement), "the order names nodes that fit"
        return Allotment(int(name), self.gpus_on(self.cluster.nodes[int(name)], verdict), pod)

    def gpus_on(self, node: ServerState, decided: Placement) -> tuple[int, ...]:
        """Return the GPUs that the pod gets on its node."""
        return decided.gpus

    def _where_the_group_goes(self, request: GpuRequest, names: frozenset[str], size: int) -> frozenset[str]:
        order = self._shapes.order
        progress = Progress(size - len(self._siblings), tuple(self._siblings))
        census = order(request).census(names, self._locations)
        fitting = fitting_for(request, progress.rest, lambda asked: order(asked).fitting(census))
        found = narrow(GroupRequest("job", size), progress, fitting, {})
        assert not isinstance(found, Rejection), "nothing is required"
        return frozenset(name for name in names if self._locations[name] in found)

    def _catch_up(self) -> None:
        journal = self.cluster.journal
        for index in sorted(set(journal[self._read :])):
            self._put(index)
        self._read = len(journal)

    def _put(self, index: int) -> None:
        node = self.cluster.nodes[index]
        idle = in_steps(node.cpu_milli) if node.server.cpu_milli or self._shared else None
        self._shapes.put(
            self._names[index],
            Shape(
                self.classes[index],
                node.free,
                plugin_chooses=self.plugin_chooses,
                cpu_milli=idle,
                shares=_shares_of(node) if self._shared else NO_SHARES,
            ),
        )


@dataclass(frozen=True, slots=True)
class _OpenTo(Container[str]):
    """The nodes that kube-scheduler's own filters let a pod go to, each looked at when it is asked about."""

    pod: PodSize
    nodes: Sequence[ServerState]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.nodes[int(name)].fits_beside_gpus(self.pod)


class GputopoObserve(Gputopo):
    """The extender where agents only observe: it forecasts what NVIDIA's plugin will hand out, and the plugin hands it out.

    The GPUs may be others than the likeliest ones: see `device_plugin`.
    """

    plugin_chooses = True

    def __init__(self, cluster: Cluster, weights: Weights, random: Random, *, required: bool = False) -> None:
        super().__init__(cluster, weights, required=required)
        self._plugin = NvidiaPlugin(random)

    def gpus_on(self, node: ServerState, decided: Placement) -> tuple[int, ...]:
        """Return what the plugin hands out."""
        return self._plugin.hand_out(node, len(decided.gpus))

    def chances(self, node: ServerState, gpus: int) -> tuple[Outcome, ...]:
        """Return what the plugin may hand out."""
        return self._plugin.outcomes(node.server.topology, node.free, gpus)


def uid_of(job: Job, number: int) -> str:
    """Return the UID of one of the job's pods."""
    return f"{job.number}/{number}"


def kind_of(pod: PodSize) -> PodKind | None:
    """Return what the extender counts of a pod; of one without GPUs it does not hear."""
    if not pod.gpus:
        return None
    return PodKind(
        pod.gpus,
        cpu_milli=pod.cpu_milli,
        models=tuple(sorted({model.lower() for model in pod.models})),
        memory_gib=pod.gpu_milli if pod.shares else 0,
    )


def _shares_of(node: ServerState) -> Shares:
    """Return what pods can share of a node whose GPUs all have 1000 GiB."""
    pods = Counter(position for each in node.allotments if each.pod.shares for position in each.gpus)
    shared = (SharedGpu(i, node.gpu_milli[i], pods=min(pods[i], MANY_PODS)) for i in sorted(pods))
    return Shares((WHOLE_GPU_MILLI,) * len(node.gpu_milli), tuple(shared), node.free)


def request_of(pod: PodSize, job: Job) -> GpuRequest:
    """Return what the pod's annotations and resources say to the extender; its GPU model is for other filters to see."""
    if pod.shares:
        return replace(GpuRequest.plain(0), memory_gib=(pod.gpu_milli,), cpu_milli=pod.cpu_milli)
    usual = GpuRequest.plain(pod.gpus)
    communication = job.communication if pod.gpus > 1 else usual.communication
    return replace(usual, communication=communication, cpu_milli=pod.cpu_milli)
