"""What is added up over all nodes: kept in step with their views, so that nobody goes through thousands of them to know it."""

from __future__ import annotations

from collections import Counter
from operator import add, sub
from typing import Final, NamedTuple

from extender.cluster.candidates.openness import BY_DRA
from extender.cluster.node_view import NodeView
from topology.placement.topology_class import TopologyClass

OF_NODES: Final = (
    "nodes",
    "nodes_closed",
    "stands_aside",
    "gpus",
    "gpus_free",
    "gpus_free_set_aside",
    "gpus_shared",
    "share_gib_taken",
    "share_gib_left",
    "gpus_in_conflict",
    "gpus_held_by_claims",
    "gpus_used_without_claim",
    "ledgers_broken",
)
"""By the names of their gauges."""


class _Part(NamedTuple):
    """What one node adds."""

    figures: tuple[int, ...]
    topology_class: TopologyClass | None


_NONE: Final = _Part((0,) * len(OF_NODES), None)


class Sums:
    """All nodes together; to put a node in takes as long however many there are."""

    def __init__(self) -> None:
        """Begin without a node."""
        self._parts: dict[str, _Part] = {}
        self._figures = _NONE.figures
        self._nodes_of = Counter[TopologyClass]()

    @property
    def figures(self) -> dict[str, int]:
        """Return the sums by name."""
        return dict(zip(OF_NODES, self._figures, strict=True))

    @property
    def topology_classes(self) -> int:
        """Return how many classes the nodes are of."""
        return len(self._nodes_of)

    def put(self, name: str, view: NodeView | None) -> None:
        """Take in what a node is now; `None` if it is gone."""
        before, now = self._parts.pop(name, _NONE), _part(view) if view else _NONE
        if view:
            self._parts[name] = now
        if now.figures != before.figures:
            self._figures = tuple(map(add, self._figures, map(sub, now.figures, before.figures)))
        if now.topology_class is not before.topology_class:
            self._add(before.topology_class, -1)
            self._add(now.topology_class, 1)

    def _add(self, topology_class: TopologyClass | None, nodes: int) -> None:
        if topology_class is not None:
            self._nodes_of[topology_class] += nodes
            if not self._nodes_of[topology_class]:
                del self._nodes_of[topology_class]


def _part(view: NodeView) -> _Part:
    if not view.uuids:
        return _NONE._replace(figures=(*_NONE.figures[:-1], int(view.is_broken)))
    shape, shared, uses = view.shape, view.shape.shares.shared, view.uses.values()
    figures = (
        1,
        shape.closed is not None,
        shape.closed == BY_DRA,
        len(view.uuids),
        shape.free_gpus.bit_count() if view.is_open else 0,
        0 if view.is_open else shape.free_gpus.bit_count(),
        len(shared),
        sum(use.memory_gib for use in uses),
        sum(gpu.room_gib for gpu in shared) if view.is_open else 0,
        len(view.conflicts.keys() | view.disputed),
        len({view.silicon.slices.get(device, device) for device in view.dra.held}),
        len(view.dra.unexplained),
        view.is_broken,
    )
    return _Part(figures, shape.topology_class)
