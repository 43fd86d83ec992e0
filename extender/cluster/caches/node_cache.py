"""All nodes, each in the newest version that was heard of, with its annotations decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from extender.cluster.caches.topology_changes import TopologyChanges
from extender.cluster.objects.health_signs import HealthWords, Sign
from extender.cluster.objects.kinds import Node, ObjectMeta, bare
from extender.cluster.objects.locations import locate
from extender.cluster.objects.payloads import NodePayloads, Payload, RestlessTopology
from extender.cluster.objects.published_parts import PublishedParts
from extender.cluster.objects.topologies import NodeGpus, Topologies
from extender.cluster.objects.versions import NOTHING_MORE, Listing, is_older, is_same_version
from topology.annotations.pauses import why_no_new_pods
from topology.annotations.records import Claim, Observed
from topology.placement.topology_classes import TopologyClasses
from topology.request.domains import DOMAIN_LABELS, DomainLabels, Location


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
        """Whether it says that the claim's pod holds the GPU, or a share of it."""
        if self.observed is None:
            return False
        holder, sharers = self.observed.gpus.get(claim.gpu), self.observed.shared.get(claim.gpu, ())
        seen = (holder, *sharers) if holder else sharers
        return any((who.namespace, who.name) == (claim.namespace, claim.name) for who in seen)


@dataclass(frozen=True, slots=True)
class KnownNode:
    """One version of a node."""

    node: Node
    """Without the words of others: what matters of those are the signs."""
    payloads: NodePayloads
    signs: tuple[Sign, ...] = ()
    """What other health agents say of its GPUs."""
    paused: str = ""
    """Why no new GPU pod is to come there, by the GPU operator or by a person; empty where that is nobody's wish."""

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
        missed: Is called with the name of a node with versions that may not have been heard of, or that left with a
            ledger. `None` means that it may be any node.
        labels: Say where nodes stand.
        words: Find what other health agents say.

    """

    def __init__(
        self,
        classes: TopologyClasses,
        touched: Callable[[str], None],
        missed: Callable[[str | None], None],
        labels: DomainLabels = DOMAIN_LABELS,
        words: HealthWords | None = None,
    ) -> None:
        self.synced = False
        self._topologies = Topologies(classes)
        self._changes = TopologyChanges()
        self._labels = labels
        self._words = words or HealthWords()
        self._touched = touched
        self._missed = missed
        self._nodes: dict[str, KnownNode] = {}
        self._with_parts: dict[str, tuple[NodeGpus, PublishedParts, NodeGpus]] = {}
        """Node → what its agent and its DRA driver publish, and the two together."""
        self.locations: dict[str, Location] = {}
        """Name → where the node stands."""
        self._places: dict[Location, Location] = {}
        """Equal ones are one object, because thousands are counted in a call."""

    def replaced(self, objects: Sequence[Node], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all nodes that exist."""
        for _ in self.replacing(objects, listing):
            pass

    def replacing(self, objects: Sequence[Node], listing: Listing) -> Iterator[None]:
        """Do so in steps: all that costs time is done before anything changes. The first list fills the cache as it goes."""
        read, names = list[tuple[Node, KnownNode | None, KnownNode]](), {node.name for node in listing.unread}
        for node in objects:
            names.add(node.metadata.name)
            cached = self._nodes.get(node.metadata.name)
            if cached is None or not listing.precedes(cached.node.metadata):
                newer = self._read(node, cached)
                if newer is not cached and self.synced:
                    read.append((node, cached, newer))
                elif newer is not cached:
                    self._put(newer)
            yield
        for name in [name for name in self._nodes if name not in names]:
            self._remove(name)
        for node, cached, newer in read:
            now = self._nodes.get(newer.name)
            if now is cached:
                self._put(newer)
            elif now is None or not listing.precedes(now.node.metadata):  # a live reply came in between
                self._put(self._read(node, now))
        self._missed(None)
        self.synced = True

    def changed(self, item: Node) -> None:
        """Take this for the newest version of a node, unless a newer one is known."""
        cached = self._nodes.get(item.metadata.name)
        if cached is None or not is_older(item.metadata, cached.node.metadata):
            newer = self._read(item, cached)
            if newer is not cached:
                self._put(newer)

    def _read(self, item: Node, cached: KnownNode | None) -> KnownNode:
        """Return what the cache is to know by this version; `cached` itself where that is nothing new."""
        node, signs = bare(item), self._words.signs(item)
        if cached and (cached.node, cached.signs) == (node, signs):
            return cached  # a list shows all nodes anew, of which hardly any has changed
        before = cached.payloads if cached and cached.node.metadata.uid == item.metadata.uid else NodePayloads()
        may_read = partial(self._changes.may_read, item.metadata.name)
        labels, annotations = item.metadata.labels or {}, item.metadata.annotations or {}
        payloads = before.reread(annotations, self._topologies, may_read)
        return KnownNode(node, payloads, signs, why_no_new_pods(labels, annotations))

    def telling(self, now: float) -> Iterator[None]:
        """Take `now` (monotonic seconds) for the time from here on, and read the topologies that have been still after all.

        One topology is read in each step: that may take as long as others can wait.
        """
        for name in self._changes.tell(now):
            cached = self._nodes.get(name)
            if cached is not None and isinstance(cached.payloads.topology.problem, RestlessTopology):
                unread = replace(cached.payloads, topology=Payload(None, cached.payloads.topology.value))
                annotations = cached.node.metadata.annotations or {}
                self._put(replace(cached, payloads=unread.reread(annotations, self._topologies, lambda: True)))
                yield

    def with_parts(self, cached: KnownNode, parts: PublishedParts | None) -> NodePayloads:
        """Return a node's payloads with these MIG slices instead of those that its agent publishes; `None`: as they are."""
        topology = cached.payloads.topology
        if parts is None or topology.value is None:
            self._with_parts.pop(cached.name, None)
            return cached.payloads
        kept = self._with_parts.get(cached.name)
        if kept is None or kept[0] is not topology.value or kept[1] is not parts:
            kept = topology.value, parts, self._topologies.with_parts(topology.value, parts)
            self._with_parts[cached.name] = kept
        return replace(cached.payloads, topology=replace(topology, value=kept[2]))

    def _put(self, node: KnownNode) -> None:
        name = node.name
        self._nodes[name] = node
        location = locate(node.node, node.payloads, self._labels)
        self.locations[name] = self._places.setdefault(location, location)
        if len(self._places) > 2 * len(self._nodes):  # most of them are of nodes that moved, or are gone
            self._places = {place: place for place in self.locations.values()}
        self._touched(name)

    def deleted(self, item: Node) -> None:
        """Take this for the last version of a node that is gone."""
        cached = self._nodes.get(item.metadata.name)
        if cached and cached.node.metadata.uid == item.metadata.uid:
            self._remove(item.metadata.name)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read; `gone`: it is the node's last."""
        self._missed(metadata.name)
        if gone:
            self.deleted(Node(metadata))

    def knows(self, metadata: ObjectMeta) -> bool:
        """Whether this is the version of a node that is known."""
        cached = self._nodes.get(metadata.name)
        return cached is not None and is_same_version(metadata, cached.node.metadata)

    def learn(self, item: Node) -> None:
        """Take in what a live reply shows; a node that is not known, or known as another one, is the watch's to tell.

        What the versions were between the known one and this one will never be heard of.
        """
        cached = self._nodes.get(item.metadata.name)
        if cached and cached.node.metadata.uid == item.metadata.uid:
            self.changed(item)
            if not self._nodes[item.metadata.name].payloads.is_ledger_whole:
                self._missed(item.metadata.name)

    def get(self, name: str) -> KnownNode | None:
        """Return a node by name."""
        return self._nodes.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def _remove(self, name: str) -> None:
        if self._nodes[name].payloads.had_ledger:
            self._missed(name)
        del self._nodes[name], self.locations[name]
        self._with_parts.pop(name, None)
        self._touched(name)
