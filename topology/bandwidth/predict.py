"""Predicted bus bandwidth of a GPU set: what NCCL's ring search would find on the wires, what it is worth, and how long it takes.

Three ways to run a ring, and NCCL takes the fastest: over links from GPU to GPU (several rings side by side), through an
NVSwitch (closed form, or reduced inside the switch), or partly over PCIe, where the narrowest hop decides. One missing link is
therefore a cliff and not a slope, and a sum over pairs would not see it. Numbers that were fitted are in
`topology.bandwidth.calibration`; the time model is `topology.bandwidth.collectives`.
"""

from __future__ import annotations

from math import comb

import networkx as nx

from topology.bandwidth.calibration import IN_SWITCH, SHARED_UPLINK, Bandwidth
from topology.bandwidth.collectives import DEFAULT_MESSAGE_BYTES, Collective, Wire, in_switch, on_ring
from topology.bandwidth.hops import (
    DEFAULT_PEER_LEVEL,
    link_ratio,
    over_host,
    over_links,
    shared_uplinks,
    switch_ratio,
    widest_by_point,
)
from topology.bandwidth.rings import MAX_STEPS, Meter, Widths, components, members_of, ring_channels
from topology.node.graph import Routes, build_graph, compute_capability, gpu_vertex, link_gb_per_s
from topology.node.links import PATH_AFFINITY, Affinity, PciePath
from topology.node.model import NodeTopology

__all__ = ["Bandwidth", "Wiring", "predict", "ring_order"]

_AFFINITIES = tuple(Affinity)
_STEPS_PER_PLAN = 2_000_000
_STEPS_PER_SET = 200
"""At least; about a fifth of a millisecond."""


class Wiring:
    """The numbers of one node's graph that predictions need, by position; built once per topology class.

    `peer_level` is NCCL's: how far apart GPUs may be to access each other over PCIe.
    """

    def __init__(self, node: NodeTopology, peer_level: PciePath = DEFAULT_PEER_LEVEL) -> None:
        graph = build_graph(node)
        routes = Routes(graph)
        span = range(len(node))
        self.count = len(node)
        self.rate = [link_gb_per_s(gpu) for gpu in node.gpus]
        self.capability = [compute_capability(gpu) or (0, 0) for gpu in node.gpus]
        self.generation = [major for major, _ in self.capability]
        self.switch = [gpu.switch_links for gpu in node.gpus]
        self.direct = [[_direct_links(graph, node, i, j) for j in span] for i in span]
        self.has_direct = any(map(any, self.direct))
        self.linked = [[i != j and node.nvlinks(i, j) > 0 for j in span] for i in span]
        self._link_masks = [sum(1 << j for j in span if row[j]) for row in self.linked]
        self.affinity = [[self._affinity(node, i, j) for j in span] for i in span]
        hops = {pair: self._hop(node, routes, *pair, peer_level) for pair in node.pairs}
        self.pairs = hops
        """Rate of every hop when exactly these two GPUs take part."""
        if node.cpu_vendor == "amd":
            # NCCL lets two GPUs of an AMD host access each other across it, and not more of them.
            self.pairs = {pair: self._hop(node, routes, *pair, PciePath.SYS) for pair in node.pairs}
        self.hop_gb_per_s = [[hops[min(i, j), max(i, j)].point if i != j else 0.0 for j in span] for i in span]
        self.meter = Meter()
        """What predictions have cost so far."""
        self.hops = Widths(self.hop_gb_per_s, self.meter)
        self._intervals = widest_by_point(hops.values())
        self._uplinks = shared_uplinks(node, routes, self.linked, peer_level)
        self.affinities = Widths([[-affinity.distance for affinity in row] for row in self.affinity], self.meter)
        self._on_ring: dict[tuple[Bandwidth, Wire, int, int, int, Collective], Bandwidth] = {}

    def _affinity(self, node: NodeTopology, i: int, j: int) -> Affinity:
        return Affinity.NVLINK if i == j or self.linked[i][j] else PATH_AFFINITY[node.path(i, j)]

    def _hop(self, node: NodeTopology, routes: Routes, i: int, j: int, peer_level: PciePath) -> Bandwidth:
        gb_per_s, capability = min(self.rate[i], self.rate[j]), min(self.capability[i], self.capability[j])
        route = routes.between(gpu_vertex(node.gpus[i]), gpu_vertex(node.gpus[j]))
        ways = over_links(node, i, j, gb_per_s, capability), over_host(node, i, j, route, peer_level)
        return max(ways, key=lambda found: found.point)

    def narrowest_hop(self, members: int) -> Bandwidth:
        """Return the rate of the narrowest hop of that ring over the members whose narrowest hop is widest.

        GPUs below one PCIe switch that must go through the host share the wire above it. Where that they must is only supposed,
        it lowers the low end alone: nearer GPUs are not shunned on a supposition.
        """
        if members.bit_count() == 2:
            i, j = members_of(members)
            found = self.pairs[i, j]
        else:
            found = self._intervals[self.hops.bottleneck(members, self.max_steps(members))]
            if self._leaves_islands_twice(members):
                found = Bandwidth(found.low, found.point, 2 * found.high)
        for uplink in self._uplinks:
            below = members & uplink.members
            supposed = SHARED_UPLINK * uplink.gb_per_s / max(components(uplink.joined, below), 1)
            known = components(uplink.perhaps, below)
            if known > 1:
                wire = uplink.gb_per_s / known
                found = Bandwidth(found.low, min(found.point, SHARED_UPLINK * wire), min(found.high, wire))
            found = Bandwidth(min(found.low, supposed), found.point, found.high)
        return found

    def _leaves_islands_twice(self, members: int) -> bool:
        """Whether rings in opposite directions leave the NVLink islands by different wires.

        Between pairs of four bridged A100 NCCL reached 31 GB/s, and one wire has 24 (Azure NC96ads v4, two reports). The point
        stays where one wire puts it until another kind of machine shows it.
        """
        split = all(self._link_masks[i] & members for i in members_of(members))
        return split and components(self._link_masks, members) > 1

    def ring(self, rate: Bandwidth, wire: Wire, members: int, message_bytes: int, collective: Collective) -> Bandwidth:
        """Return what a ring at this rate achieves; remembered, because most sets of a machine run at few rates."""
        generation = min(self.generation[i] for i in members_of(members))
        key = rate, wire, generation, members.bit_count(), message_bytes, collective
        if key not in self._on_ring:
            self._on_ring[key] = _rounded(on_ring(*key))
        return self._on_ring[key]

    def max_steps(self, members: int) -> int:
        """Return how long the search over one set may take, so that a plan over all sets of its size stays bounded."""
        return max(min(_STEPS_PER_PLAN // comb(self.count, members.bit_count()), MAX_STEPS), _STEPS_PER_SET)

    def tie(self, i: int, j: int) -> tuple[int, bool, Affinity, float, Bandwidth | None, bool]:
        """Return all that lies between two positions."""
        pair = self.pairs.get((min(i, j), max(i, j)))
        below_one = any(uplink.members >> i & uplink.members >> j & 1 for uplink in self._uplinks)
        return self.direct[i][j], self.linked[i][j], self.affinity[i][j], self.hop_gb_per_s[i][j], pair, below_one

    def interchangeable(self, i: int, j: int) -> bool:
        """Whether swapping positions `i` and `j` changes no prediction."""
        return (
            (self.rate[i], self.capability[i], self.switch[i]) == (self.rate[j], self.capability[j], self.switch[j])
            and all(self.tie(i, k) == self.tie(j, k) for k in range(self.count) if k not in (i, j))
        )  # fmt: skip


def predict(
    wiring: Wiring,
    members: int,
    message_bytes: int = DEFAULT_MESSAGE_BYTES,
    collective: Collective = Collective.ALL_REDUCE,
    reduce_in_switch: bool | None = None,
) -> tuple[Bandwidth, Affinity]:
    """Return the bandwidth of two or more GPUs (bit mask) and how near their best ring's farthest hop is.

    Exact with respect to the model, so it never rises when a link is removed, never falls with the message, and does not depend
    on the order of the GPUs. `reduce_in_switch` lets few GPUs use NVLS too, or forbids it; `None` leaves it to NCCL.
    """
    over_hops = wiring.ring(wiring.narrowest_hop(members), Wire.PCIE, members, message_bytes, collective)
    on_links = [
        found
        for found in (
            _over_switch(wiring, members, message_bytes, collective, reduce_in_switch),
            _over_direct_links(wiring, members, message_bytes, collective),
        )
        if found is not None
    ]
    best = max(*on_links, over_hops, key=lambda found: found.point) if on_links else over_hops
    affinity = (
        Affinity.NVLINK
        if on_links
        else _AFFINITIES[-int(wiring.affinities.bottleneck(members, wiring.max_steps(members)))]
    )
    return best, affinity


def ring_order(wiring: Wiring, members: int) -> tuple[int, ...]:
    """Return the members as neighbours on the ring that a job should use."""
    return wiring.hops.widest_ring(members)


def _over_switch(
    wiring: Wiring, members: int, message_bytes: int, collective: Collective, reduce_in_switch: bool | None
) -> Bandwidth | None:
    """On an NVSwitch a ring's rate depends neither on which GPUs take part nor on how many; in-switch reduction does."""
    vertices = members_of(members)
    links = min(wiring.switch[i] for i in vertices)
    if not links or not all(wiring.linked[i][j] for i in vertices for j in vertices if i != j):
        return None
    rate = links * min(wiring.rate[i] for i in vertices)
    generation = min(wiring.generation[i] for i in vertices)
    ring = wiring.ring(switch_ratio(generation).of(rate), Wire.NVLINK, members, message_bytes, collective)
    how = IN_SWITCH.get(generation)
    if how is None or collective is not Collective.ALL_REDUCE or reduce_in_switch is False:
        return ring
    reduced = _rounded(in_switch(rate, how, len(vertices), message_bytes))
    worth_trying = reduce_in_switch or len(vertices) >= how.fewest
    return max(ring, reduced, key=lambda found: found.point) if worth_trying else ring


def _over_direct_links(wiring: Wiring, members: int, message_bytes: int, collective: Collective) -> Bandwidth | None:
    if not wiring.has_direct:
        return None
    channels = ring_channels(wiring.direct, members, wiring.max_steps(members), wiring.meter)
    if not channels:
        return None
    vertices = members_of(members)
    ratio = link_ratio(min(wiring.capability[i] for i in vertices))
    rate = ratio.of(channels * min(wiring.rate[i] for i in vertices))
    return wiring.ring(rate, Wire.NVLINK, members, message_bytes, collective)


def _direct_links(graph: nx.Graph[str], node: NodeTopology, i: int, j: int) -> int:
    ends = gpu_vertex(node.gpus[i]), gpu_vertex(node.gpus[j])
    return int(graph.edges[ends]["count"]) if graph.has_edge(*ends) else 0


def _rounded(found: Bandwidth) -> Bandwidth:
    """To six significant digits: what two computers agree on."""
    return Bandwidth(float(f"{found.low:.6g}"), float(f"{found.point:.6g}"), float(f"{found.high:.6g}"))
