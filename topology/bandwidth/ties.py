"""What lies between any two GPUs of a machine, worked out for those few that stand for all (`topology.node.alike`).

So what it takes to compile a machine grows with how many of its GPUs differ. Of how many there are only tables are filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import networkx as nx

from topology.bandwidth.calibration import Bandwidth
from topology.bandwidth.hops import Uplink, over_host, over_links, shared_uplinks
from topology.bandwidth.rings import members_of
from topology.node.alike import Block
from topology.node.graph import Routes, build_graph, compute_capability, gpu_vertex, link_gb_per_s
from topology.node.links import PATH_AFFINITY, Affinity, PciePath
from topology.node.model import NodeTopology


@dataclass(frozen=True, slots=True)
class Tie:
    """All that lies between two positions, or a position and itself."""

    direct: int = 0
    """NVLinks from one to the other that may be used."""
    linked: bool = False
    """Over NVLinks, straight or through the NVSwitch."""
    affinity: Affinity = Affinity.NVLINK
    hop: Bandwidth | None = None
    """Rate of the hop; `None` from a position to itself."""
    alone: Bandwidth | None = None
    """The same when no other GPU takes part."""
    uplink_gb_per_s: float | None = None
    """Of the wire above both, where GPUs below it may have to share it."""
    joined: bool = True
    """Whether they are supposed to reach each other without that wire."""
    perhaps: bool = True
    """The same where nothing that is known denies it."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes a tie another one."""
        point = self.hop.point if self.hop else 0.0
        return self.direct, self.linked, self.affinity, point, self.alone, self.uplink_gb_per_s is not None


class Ties:
    """The ties of one machine: `kinds`, and for each two positions which of these is theirs."""

    def __init__(self, node: NodeTopology, peer_level: PciePath) -> None:
        """Work them out; `peer_level` is NCCL's."""
        self.kinds: list[Tie] = []
        self.between = [[0] * len(node) for _ in node.gpus]
        self._samples = _Samples(node, peer_level)
        self._numbers: dict[tuple[int, int], int] = {}
        for one, other in combinations(node.blocks, 2):
            number = self._number(one, other)
            self._fill(one.members, other.members, number)
            self._fill(other.members, one.members, number)
        for block in node.blocks:
            self._fill_within(block, block)

    def _fill_within(self, block: Block, sample: Block) -> None:
        """Fill in what lies between the positions of a block, which is like another one."""
        number = self._number(*sample.parts[:2]) if block.parts else self._number(sample, sample)
        self._fill(block.members, block.members, number)
        for part in block.parts:
            self._fill_within(part, sample.parts[0])

    def _fill(self, some: int, others: int, number: int) -> None:
        columns = members_of(others)
        for i in members_of(some):
            row = self.between[i]
            for j in columns:
                row[j] = number

    def _number(self, one: Block, other: Block) -> int:
        pair = one.first, other.first
        if pair not in self._numbers:
            self._numbers[pair] = len(self.kinds)
            self.kinds.append(self._samples.tie(*pair))
        return self._numbers[pair]

    def uplinks(self) -> tuple[Uplink, ...]:
        """Return the wires above PCIe switches below which not all GPUs reach each other."""
        found, seen = [], 0
        for i, row in enumerate(self.between):
            rate = self.kinds[row[i]].uplink_gb_per_s
            if rate is None or seen >> i & 1:
                continue
            below = [j for j, kind in enumerate(row) if self.kinds[kind].uplink_gb_per_s is not None]
            members = sum(1 << j for j in below)
            seen |= members
            joined, perhaps = [members] * len(row), [members] * len(row)
            for j in below:
                ties = [(1 << k, self.kinds[self.between[j][k]]) for k in below]
                joined[j] = sum(bit for bit, tie in ties if tie.joined)
                perhaps[j] = sum(bit for bit, tie in ties if tie.perhaps)
            found.append(Uplink(members, rate, tuple(joined), tuple(perhaps)))
        return tuple(found)


class _Samples:
    """The GPUs that stand for all, as a machine of their own."""

    def __init__(self, node: NodeTopology, peer_level: PciePath) -> None:
        kept = sorted(i for block in node.blocks for i in block.samples)
        self._place = {position: place for place, position in enumerate(kept)}
        self._node = _among(node, kept)
        self._graph = build_graph(self._node)
        self._routes = Routes(self._graph)
        self._peer_level = peer_level
        span = range(len(kept))
        linked = [[i != j and self._node.nvlinks(i, j) > 0 for j in span] for i in span]
        self._uplinks = shared_uplinks(self._node, self._routes, linked, peer_level)

    def tie(self, one: int, other: int) -> Tie:
        """Return what lies between two positions of the whole machine."""
        i, j = self._place[one], self._place[other]
        uplink = next((each for each in self._uplinks if each.members >> i & each.members >> j & 1), None)
        rate = uplink.gb_per_s if uplink else None
        if i == j:
            return Tie(uplink_gb_per_s=rate)
        node, linked = self._node, self._node.nvlinks(i, j) > 0
        hop = self._hop(i, j, self._peer_level)
        # NCCL lets two GPUs of an AMD host access each other across it, and not more of them.
        alone = self._hop(i, j, PciePath.SYS) if node.cpu_vendor == "amd" else hop
        return Tie(
            _direct_links(self._graph, node, i, j),
            linked,
            Affinity.NVLINK if linked else PATH_AFFINITY[node.path(i, j)],
            hop,
            alone,
            rate,
            uplink is None or bool(uplink.joined[i] >> j & 1),
            uplink is None or bool(uplink.perhaps[i] >> j & 1),
        )

    def _hop(self, i: int, j: int, peer_level: PciePath) -> Bandwidth:
        node, gpus = self._node, (self._node.gpus[i], self._node.gpus[j])
        gb_per_s = min(map(link_gb_per_s, gpus))
        capability = min(compute_capability(gpu) or (0, 0) for gpu in gpus)
        route = self._routes.between(*map(gpu_vertex, gpus))
        ways = over_links(node, i, j, gb_per_s, capability), over_host(node, i, j, route, peer_level)
        return max(ways, key=lambda found: found.point)


def _among(node: NodeTopology, positions: Sequence[int]) -> NodeTopology:
    """Return the machine with these GPUs only, without NICs and slices."""
    if len(positions) == len(node):
        return node
    gpus = tuple(node.gpus[i] for i in positions)
    kept = {gpu.index for gpu in gpus}
    links = tuple(link for link in node.links if link.a in kept and link.b in kept)
    return replace(node, gpus=gpus, links=links, nics=(), slices=())


def _direct_links(graph: nx.Graph[str], node: NodeTopology, i: int, j: int) -> int:
    ends = gpu_vertex(node.gpus[i]), gpu_vertex(node.gpus[j])
    return int(graph.edges[ends]["count"]) if graph.has_edge(*ends) else 0
