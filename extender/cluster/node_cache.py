"""All nodes, each in the newest version that was heard of, with its annotations decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from extender.cluster.locations import LABELS, Labels, locate
from extender.cluster.objects import Node
from extender.cluster.payloads import NodePayloads
from extender.cluster.versions import is_older
from topology.domains import Location
from topology.placement.topology_class import TopologyClasses
from topology.records import Claim, Observed


@dataclass(frozen=True, slots=True)
class Report:
    """What tells one report of a node's agent from the next."""

    observed: Observed | None
    """What containers hold; `None` from an agent that does not look."""
    writes: int
    """The agent's own count of its writes."""
    node_version: str = field(default="", compare=False)
    """resourceVersion of the node that it was read from."""

    def shows(self, claim: Claim) -> bool:
        """Whether it says that the claim's pod holds the GPU."""
        holder = self.observed.gpus.get(claim.gpu) if self.observed else None
        return holder is not None and (holder.namespace, holder.name) == (claim.namespace, claim.name)


@dataclass(frozen=True, slots=True)
class KnownNode:
    """One version of a node."""

    node: Node
    payloads: NodePayloads

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def report(self) -> Report:
        """The agent's newest report."""
        status, observed = self.payloads.status.value, self.payloads.observed.value
        if observed and observed.generation:  # the look counts, not a write for which the agent could not look
            return Report(observed, observed.generation, self.node.metadata.resource_version)
        return Report(observed, status.generation if status else 0, self.node.metadata.resource_version)


class NodeCache:
    """Takes lists, events and live replies in any order.

    Args:
        classes: Compiles topologies.
        touched: Is called with the name of each node that changed.
        missed: Is called when a version of some node may not have been heard of, or a node is gone that had a ledger.
        labels: Say where nodes stand.

    """

    def __init__(
        self,
        classes: TopologyClasses,
        touched: Callable[[str], None],
        missed: Callable[[], None],
        labels: Labels = LABELS,
    ) -> None:
        self.synced = False
        self._classes = classes
        self._labels = labels
        self._touched = touched
        self._missed = missed
        self._nodes: dict[str, KnownNode] = {}
        self.locations: dict[str, Location] = {}
        """Name → where the node stands."""
        self._places: dict[Location, Location] = {}
        """Equal ones are one object, because thousands are counted in a call."""

    def replaced(self, objects: Sequence[Node]) -> None:
        """Take these for all nodes that exist."""
        names = {node.metadata.name for node in objects}
        for name in [name for name in self._nodes if name not in names]:
            self._remove(name)
        for node in objects:
            self.changed(node)
        self._missed()
        self.synced = True

    def changed(self, item: Node) -> None:
        """Take this for the newest version of a node, unless a newer one is known."""
        name, known = item.metadata.name, self._nodes.get(item.metadata.name)
        if known and is_older(item.metadata, known.node.metadata):
            return
        before = known.payloads if known and known.node.metadata.uid == item.metadata.uid else NodePayloads()
        payloads = before.reread(item.metadata.annotations or {}, self._classes)
        self._nodes[name] = KnownNode(item, payloads)
        location = locate(item, payloads, self._labels)
        self.locations[name] = self._places.setdefault(location, location)
        self._touched(name)

    def deleted(self, item: Node) -> None:
        """Take this for the last version of a node that is gone."""
        known = self._nodes.get(item.metadata.name)
        if known and known.node.metadata.uid == item.metadata.uid:
            self._remove(item.metadata.name)

    def learn(self, item: Node) -> None:
        """Take in what a live reply shows; a node that is not known, or known as another one, is the watch's to tell.

        What the versions were between the known one and this one will never be heard of.
        """
        known = self._nodes.get(item.metadata.name)
        if known and known.node.metadata.uid == item.metadata.uid:
            self.changed(item)
            if not self._nodes[item.metadata.name].payloads.is_ledger_whole:
                self._missed()

    def get(self, name: str) -> KnownNode | None:
        """Return a node by name."""
        return self._nodes.get(name)

    def statuses(self) -> Iterator[tuple[str, str | None]]:
        """Yield name and status text of each node."""
        return ((name, known.payloads.status.text) for name, known in self._nodes.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def _remove(self, name: str) -> None:
        if self._nodes[name].payloads.had_ledger:
            self._missed()
        del self._nodes[name], self.locations[name]
        self._touched(name)
