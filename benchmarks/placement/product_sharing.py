"""The product where pods share GPUs and CPU runs short: the one function that decides there.

To it, nodes of one kind with the same left are one node: for each kind of pod these spaces are kept in order, and only those that
nodes came to or left since such a pod last came are looked at again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby

from benchmarks.placement.cluster import Allotment, Cluster, Node
from benchmarks.placement.jobs import Job, Pod
from benchmarks.placement.product import Learning
from topology.placement.decide import Situation, decide
from topology.placement.shares import SharedGpu, Shares
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest
from topology.value.coming import PodsToCome
from topology.value.fragmentation import WHOLE_GPU_MILLI, FreeCapacity, PodKind
from topology.value.score import Weights


def shares_of(capacity: FreeCapacity) -> Shares:
    """Return what pods can share where every GPU has 1000 GiB: the trace counts in thousandths, and so it can be counted."""
    shared = (SharedGpu(i, milli) for i, milli in enumerate(capacity.gpu_milli) if 0 < milli < WHOLE_GPU_MILLI)
    return Shares((WHOLE_GPU_MILLI,) * len(capacity.gpu_milli), tuple(shared), capacity.free)


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """What some nodes have left that are alike otherwise too."""

    number: int
    topology_class: TopologyClass
    model: str
    capacity: FreeCapacity
    nodes: list[int] = field(default_factory=list)
    """In order; none once all have changed."""


class GputopoSharing(Learning):
    """The extender in front of a scheduler that does what it says."""

    def __init__(self, cluster: Cluster, weights: Weights = Weights(), *, required: bool = False) -> None:  # noqa: B008
        self._gpus_of_model = Counter(node.server.model for node in cluster.nodes for _ in node.gpu_milli)
        self._to_come = PodsToCome((), self._gpus_of_model)
        self._orders: dict[tuple[GpuRequest, tuple[str, ...]], _Order] = {}
        super().__init__(cluster, weights, required=required)
        self._spaces: dict[tuple[TopologyClass, str, FreeCapacity], Space] = {}
        self.space_of = [self._enter(node) for node in cluster.nodes]
        """By the index of the node."""
        self.changes: list[Space] = []
        """Spaces that a node came to or left, oldest first."""
        self._read = len(cluster.journal)

    def forget_verdicts(self) -> None:
        """Look at what is left of the nodes with the eyes of the pods that are typical now."""
        self._to_come = PodsToCome(self.values.typical, self._gpus_of_model)
        self._orders.clear()

    def kind_of(self, pod: Pod) -> PodKind:
        """Return all that the pod takes, its share of a GPU and the models that will do included."""
        return PodKind(pod.gpus, pod.gpu_milli, pod.cpu_milli, pod.models)

    def choose(self, pod: Pod, job: Job) -> Allotment | None:
        """Return the place of one pod."""
        self._catch_up()
        said = self.request(pod, job)
        key = replace(said, gpus=0, memory_gib=(pod.gpu_milli,)) if pod.shares else said, pod.models
        if key not in self._orders:
            self._orders[key] = _Order(self, *key)
        return self._orders[key].best(pod)

    def decide(self, space: Space, request: GpuRequest, models: tuple[str, ...]) -> Placement | None:
        """Return the placement on any of the space's nodes, `None` where the pod does not fit."""
        if request.cpu_milli > space.capacity.cpu_milli or (models and space.model not in models):
            return None
        capacity, to_come = space.capacity, self._to_come.at(space.model, WHOLE_GPU_MILLI)
        situation = Situation(
            space.topology_class, capacity.free, capacity=capacity, to_come=to_come, shares=shares_of(capacity)
        )
        verdict = decide(situation, request)
        return verdict if isinstance(verdict, Placement) else None

    def _catch_up(self) -> None:
        journal = self.cluster.journal
        for index in set(journal[self._read :]):
            before = self.space_of[index]
            del before.nodes[bisect_left(before.nodes, index)]
            self.space_of[index] = self._enter(self.cluster.nodes[index])
            self.changes += before, self.space_of[index]
        self._read = len(journal)

    def _enter(self, node: Node) -> Space:
        key = self.classes[node.index], node.server.model, FreeCapacity(tuple(node.gpu_milli), node.cpu_milli)
        if key not in self._spaces:
            self._spaces[key] = Space(len(self._spaces), *key)
        insort(self._spaces[key].nodes, node.index)
        return self._spaces[key]


_Ranked = tuple[float, int, int, Space, Placement]
"""Minus the score, GPUs free, number of the space: before these tell two apart, no more is compared."""


class _Order:
    """The spaces that fit one kind of pod, best first; equal ones by free GPUs, and their nodes by name, as in the extender."""

    def __init__(self, policy: GputopoSharing, request: GpuRequest, models: tuple[str, ...]) -> None:
        self._policy = policy
        self._request = request
        self._models = models
        self._known: dict[Space, _Ranked | None] = {}
        """`None` where the pod does not fit."""
        self._ranked: list[_Ranked] = []
        """Those with nodes."""
        self._update(policy.space_of)
        self._read = len(policy.changes)

    def best(self, pod: Pod) -> Allotment | None:
        """Return the place of a pod of this kind."""
        self._update(self._policy.changes[self._read :])
        self._read = len(self._policy.changes)
        nodes = self._policy.cluster.nodes
        for _, equals in groupby(self._ranked, key=lambda ranked: ranked[:2]):
            for index in merge(*(space.nodes for *_, space, _ in equals)):
                if pod.memory_mib <= nodes[index].memory_mib:
                    ranked = self._known[self._policy.space_of[index]]
                    assert ranked is not None, "the order names spaces that fit"
                    return Allotment(index, ranked[-1].gpus, pod)
        return None

    def _update(self, spaces: list[Space]) -> None:
        for space in set(spaces):
            ranked = self._look(space) if space.nodes else self._known.get(space)
            if ranked is None:
                continue
            place = bisect_left(self._ranked, ranked)
            stands = place < len(self._ranked) and self._ranked[place] is ranked
            if space.nodes and not stands:
                self._ranked.insert(place, ranked)
            elif stands and not space.nodes:
                del self._ranked[place]

    def _look(self, space: Space) -> _Ranked | None:
        if space not in self._known:
            found = self._policy.decide(space, self._request, self._models)
            self._known[space] = (
                (-found.score, space.capacity.free.bit_count(), space.number, space, found) if found else None
            )
        return self._known[space]
