"""Which machines are wired and equipped alike: nodes of one kind share one `TopologyClass`, and what was found on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

from topology.bandwidth.measured import Figure, Measurements
from topology.effort import Effort
from topology.errors import PayloadError
from topology.node.alike import Block, unlike
from topology.node.model import NodeTopology
from topology.placement.topology_class import Tables, TopologyClass
from topology.request.suitability import anonymous
from topology.value.score import Weights

MAX_UNLIKE = 24
"""GPUs of a machine of which no two can be exchanged, alone or with others: what it costs to compile grows with their square."""


class TopologyClasses:
    """Hands out one compiled `TopologyClass` for all nodes that are wired and equipped alike."""

    def __init__(
        self,
        weights: Weights = Weights(),  # noqa: B008 - a frozen value
        effort: Effort | None = None,
        tables: Tables | None = None,
    ) -> None:
        self._weights = weights
        self._effort = effort
        self._tables = tables
        self._known: WeakValueDictionary[NodeTopology, TopologyClass] = WeakValueDictionary()
        """Those that somebody still has: a node that changes all the time leaves nothing behind."""
        self._measurements: Measurements = {}

    def of(self, node: NodeTopology) -> TopologyClass:
        """Return the class of a node; identity (UUIDs, PCI addresses, NIC names) makes no difference.

        Raises `PayloadError` where more than `MAX_UNLIKE` GPUs have to stand for all.
        """
        nameless = anonymous(node)
        known = self._known.get(nameless)
        if known is None:
            _check_unlike(nameless.blocks if len(node) > MAX_UNLIKE else ())
            known = TopologyClass(nameless, self._weights, self._effort, self._tables)
            _check_unlike(known.blocks)
            self._known[nameless] = known
            if self._measurements:
                known.measured(figures_of(known, self._measurements))
        return known

    def measured(self, measurements: Measurements) -> bool:
        """Let these figures, and no others, stand in the place of predictions; returns whether that changes any class."""
        self._measurements = measurements
        changed = [each.measured(figures_of(each, measurements)) for each in self]
        return any(changed)

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[TopologyClass]:
        return iter([*self._known.values()])


def figures_of(topology_class: TopologyClass, measurements: Measurements) -> tuple[Figure, ...]:
    """Return what was measured on such machines."""
    found = measurements.get(topology_class.kind) if measurements else None
    return found.figures if found else ()


def _check_unlike(blocks: Sequence[Block]) -> None:
    if (count := unlike(blocks)) > MAX_UNLIKE:
        raise PayloadError("$.gpus", f"{count} GPUs that are all different, at most {MAX_UNLIKE} are planned for")
