"""What a new node would be like: groups of nodes by one label, such as the instance type, with the topology of an empty node.

What the operator declares counts first, else what most nodes of the group publish. A group whose last node is gone is remembered:
autoscalers take groups down to nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from extender.cluster.candidates.shape import Shape
from extender.config.defaults import NODE_GROUP_LABEL
from topology.fair_cache import FairCache
from topology.node.model import NodeTopology
from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import TopologyClasses
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

REMEMBERED: Final = 64
"""Groups without a node."""


class Gives(Enum):
    """How pods get the GPUs of a node."""

    BY_PLAN = auto()
    BY_PLUGIN = auto()
    """NVIDIA's plugin chooses."""
    BY_CLAIM = auto()
    """By ResourceClaims."""


Kind = tuple[TopologyClass, Gives]
"""How a node is wired, and how it gives its GPUs."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """An empty node of a group."""

    name: str
    """The label's value."""
    empty: Shape
    gives: Gives | None
    """`None`: nobody knows, as there is no node yet."""

    @property
    def gpus(self) -> int:
        """How many GPUs it has to give."""
        return self.empty.free.bit_count()

    def would_take(self, request: GpuRequest) -> bool:
        """Whether a pod with this request fits there; not before a long search has come to its end."""
        by_claim = request.by_claim if self.gives is None else self.gives is Gives.BY_CLAIM
        return by_claim == request.by_claim and isinstance(self._empty_for(request).decide(request), Placement)

    def how_many_fit(self, request: GpuRequest) -> int:
        """Return how many pods with this request fit there, of which it would take one."""
        return self._empty_for(request).how_many_fit(request)[0]

    def _empty_for(self, request: GpuRequest) -> Shape:
        """Return the empty node as one that gives its GPUs as a pod requests them."""
        return replace(self.empty, by_claim=request.by_claim)


class NodeGroups:
    """All groups that are known, kept in step with the nodes."""

    def __init__(
        self, classes: TopologyClasses, label: str = NODE_GROUP_LABEL, declared: Mapping[str, NodeTopology] = {}
    ) -> None:
        """Compile the declared topologies now, so that their free sets have values when the first node comes."""
        self.label = label
        self._declared = {name: classes.of(topology) for name, topology in declared.items()}
        self._group_of: dict[str, tuple[str, Kind]] = {}
        """By node."""
        self._kinds: dict[str, Counter[Kind]] = {}
        """By group: how many nodes are of each kind."""
        self._gone = FairCache[str, Kind](REMEMBERED)
        """The last kind of groups without a node; owned by the last node, so that one with ever new labels pushes out its own."""

    def put(
        self, node: str, labels: Mapping[str, str], topology_class: TopologyClass | None, gives: Gives = Gives.BY_PLAN
    ) -> None:
        """Take this for what a node is; one that has not published its topology yet teaches nothing."""
        self.remove(node)
        group = labels.get(self.label)
        if not group or topology_class is None:
            return
        kind = topology_class, gives
        self._group_of[node] = group, kind
        self._kinds.setdefault(group, Counter())[kind] += 1
        if group in self._gone:
            self._gone.drop(group)

    def remove(self, node: str) -> None:
        """Forget a node."""
        before = self._group_of.pop(node, None)
        if before is None:
            return
        group, kind = before
        kinds = self._kinds[group]
        kinds[kind] -= 1
        kinds += Counter()  # without those of which there is none left
        if not kinds:
            del self._kinds[group]
            self._gone.put(group, kind, node)

    def would_take(self, request: GpuRequest) -> tuple[NodeGroup, ...]:
        """Return the groups of which an empty node would take the pod, by name."""
        return tuple(group for group in self if group.would_take(request))

    def __iter__(self) -> Iterator[NodeGroup]:
        for name in sorted({*self._declared, *self._kinds, *self._gone}):
            topology_class, gives = self._kind_of(name)
            yield NodeGroup(name, _empty(topology_class, plugin_chooses=gives is Gives.BY_PLUGIN), gives)

    def _kind_of(self, name: str) -> tuple[TopologyClass, Gives | None]:
        kinds = self._kinds.get(name)
        kind = max(kinds, key=lambda kind: (kinds[kind], len(kind[0].node))) if kinds else self._gone.get(name)
        if declared := self._declared.get(name):
            return declared, kind[1] if kind else self._as_most_give()
        assert kind is not None
        return kind

    def _as_most_give(self) -> Gives | None:
        counts = Counter(gives for _, (_, gives) in self._group_of.values())
        return max(Gives, key=counts.__getitem__) if counts else None


def _empty(topology_class: TopologyClass, *, plugin_chooses: bool) -> Shape:
    whole = (not gpu.mig_enabled for gpu in topology_class.node.gpus)
    free = sum(1 << position for position, is_whole in enumerate(whole) if is_whole)
    return Shape(topology_class, free, plugin_chooses=plugin_chooses)
