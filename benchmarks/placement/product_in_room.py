"""The product where pods share GPUs and CPU runs short: the one function that decides there.

The nodes are kept in order for each kind of pod; only those that changed since such a pod last came are asked again.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from benchmarks.placement.cluster import Allotment, Cluster, Node
from benchmarks.placement.jobs import Job, Pod
from benchmarks.placement.product import Learning, wish_of
from topology.request import GpuRequest
from topology.room import Appetite, PodKind, Room
from topology.sharing import plan_in_room
from topology.value import Weights
from topology.verdict import Placement


class GputopoInRoom(Learning):
    """The extender in front of a scheduler that does what it says."""

    def __init__(self, cluster: Cluster, weights: Weights = Weights()) -> None:  # noqa: B008 - a frozen value
        self._appetites: dict[str, Appetite] = {}
        self._orders: dict[tuple[GpuRequest, PodKind], _Order] = {}
        self._numbers: dict[tuple[int, Room], int] = {}
        self.numbered_rooms = [self._numbered_room(node) for node in cluster.nodes]
        """What each node has left, and a number that is the same for nodes of one kind that have the same left."""
        self._read = len(cluster.journal)
        super().__init__(cluster, weights)

    def forget_verdicts(self) -> None:
        """Look at what is left of the nodes with the eyes of the pods that are typical now."""
        models = {node.server.model for node in self.cluster.nodes}
        self._appetites = {model: Appetite(self.values.typical, model) for model in models}
        self._orders.clear()

    def kind_of(self, pod: Pod) -> PodKind:
        """Return all that the pod takes, its share of a GPU and the models that will do included."""
        return PodKind(pod.gpus, pod.gpu_milli, pod.cpu_milli, pod.models)

    def choose(self, pod: Pod, job: Job) -> Allotment | None:
        """Return the place of one pod."""
        self._catch_up()
        key = wish_of(pod, job), self.kind_of(pod)
        if key not in self._orders:
            self._orders[key] = _Order(self, *key)
        return self._orders[key].best(pod)

    def plan(self, node: Node, wish: GpuRequest, kind: PodKind) -> Placement | None:
        """Return the placement on one node, `None` where the pod does not fit."""
        room, _ = self.numbered_rooms[node.index]
        if kind.cpu_milli > room.cpu_milli or (kind.models and node.server.model not in kind.models):
            return None
        appetite = self._appetites[node.server.model]
        verdict = plan_in_room(self.classes[node.index], room, wish, kind, appetite)
        return verdict if isinstance(verdict, Placement) else None

    def _catch_up(self) -> None:
        journal = self.cluster.journal
        for index in set(journal[self._read :]):
            self.numbered_rooms[index] = self._numbered_room(self.cluster.nodes[index])
        self._read = len(journal)

    def _numbered_room(self, node: Node) -> tuple[Room, int]:
        room = Room(tuple(node.gpu_milli), node.cpu_milli)
        return room, self._numbers.setdefault((node.kind, room), len(self._numbers))


_Key = tuple[float, int, int]
"""Minus the score, GPUs free, number of the node."""


class _Order:
    """All nodes that fit one kind of pod, best first; equal ones by number of free GPUs and name, as the extender has them."""

    def __init__(self, policy: GputopoInRoom, wish: GpuRequest, kind: PodKind) -> None:
        self._policy = policy
        self._wish = wish
        self._kind = kind
        self._found: dict[int, tuple[_Key, Placement]] = {}
        self._plans: dict[int, Placement | None] = {}
        """By the number of what a node has left: many are alike."""
        self._read = len(policy.cluster.journal)
        for node in policy.cluster.nodes:
            self._look(node)
        self._ranked = sorted(key for key, _ in self._found.values())

    def best(self, pod: Pod) -> Allotment | None:
        """Return the place of a pod of this kind."""
        cluster = self._policy.cluster
        for index in set(cluster.journal[self._read :]):
            self._enter(cluster.nodes[index])
        self._read = len(cluster.journal)
        for _, _, index in self._ranked:
            if pod.memory_mib <= cluster.nodes[index].memory_mib:
                return Allotment(index, self._found[index][1].gpus, pod)
        return None

    def _enter(self, node: Node) -> None:
        before = self._found.pop(node.index, None)
        if before is not None:
            del self._ranked[bisect_left(self._ranked, before[0])]
        key = self._look(node)
        if key is not None:
            insort(self._ranked, key)

    def _look(self, node: Node) -> _Key | None:
        placement = self._plan(node)
        if placement is None:
            return None
        key = (-placement.score, node.free.bit_count(), node.index)
        self._found[node.index] = key, placement
        return key

    def _plan(self, node: Node) -> Placement | None:
        _, number = self._policy.numbered_rooms[node.index]
        if number not in self._plans:
            self._plans[number] = self._policy.plan(node, self._wish, self._kind)
        return self._plans[number]
