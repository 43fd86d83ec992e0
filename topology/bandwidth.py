"""Predicted all-reduce bus bandwidth of a GPU set: what NCCL's ring search would find on the wires, times one calibration table.

Three ways to run a ring, and NCCL takes the fastest: over links from GPU to GPU (several rings side by side), through an
NVSwitch (closed form), or partly over PCIe, where the narrowest hop decides. One missing link is therefore a cliff and not a
slope, and a sum over pairs would not see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import networkx as nx

from topology.architectures import architecture_of
from topology.graph import (
    build_graph,
    compute_capability,
    gpu_vertex,
    link_gb_per_s,
    pcie_route_gb_per_s,
    staged_gb_per_s,
)
from topology.links import PATH_AFFINITY, Affinity
from topology.model import NodeTopology
from topology.rings import MAX_STEPS, Widths, members_of, ring_channels


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """An all-reduce bus bandwidth for large messages, GB/s (decimal), as nccl-tests counts it."""

    low: float
    point: float
    high: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far the real rate is from links times NCCL's constant, and how sure that is."""

    factor: float
    low: float
    high: float

    def of(self, gb_per_s: float) -> Bandwidth:
        """Turn a rate by constants into a prediction, to three significant digits of MB/s."""
        point = self.factor * gb_per_s
        return Bandwidth(round(point * self.low, 3), round(point, 3), round(point * self.high, 3))


# Factors: NCCL 2.30 constants against nccl-tests results of 1 GiB and more, as published for V100 SXM2 (8 GPUs: 135.5 of
# 120), A40 (47.5 of 48), A100 NVSwitch (232..235 of 240), A100 bridge pair (208 of 240), H200 ring (363..368 of 371), B200
# ring (673..682 of 722). Two reports of one machine agree within 1..5 %.
_DIRECT = {6: Calibration(1.0, 0.8, 1.15), 7: Calibration(1.1, 0.85, 1.1), 8: Calibration(0.95, 0.8, 1.1)}
_DIRECT_DEFAULT = Calibration(0.93, 0.5, 1.1)
_SWITCH = {7: Calibration(1.0, 0.85, 1.15), 8: Calibration(0.975, 0.92, 1.05), 9: Calibration(0.985, 0.92, 1.05)}
_SWITCH_DEFAULT = Calibration(0.94, 0.88, 1.06)
_PCIE = Calibration(0.85, 0.2, 1.6)
"""Host memory, CPU and chipset decide as much as the wires, so the interval is wide."""

_NVLS = {9: (5, 1.43), 10: (6, 1.31)}
"""Major compute capability → (fewest GPUs at which NCCL reduces in the switch, gain before (n-1)/n); H200: 414, 436, 460,
473 GB/s for 5..8 GPUs; B200: 778, 811, 838 for 6..8."""

_AFFINITIES = tuple(Affinity)
_STEPS_PER_PLAN = 2_000_000
_STEPS_PER_SET = 200
"""At least; about a fifth of a millisecond."""


class Wiring:
    """The numbers of one node's graph that predictions need, by position; built once per topology class."""

    def __init__(self, node: NodeTopology) -> None:
        graph = build_graph(node)
        span = range(len(node))
        self.count = len(node)
        self.rate = [link_gb_per_s(gpu) for gpu in node.gpus]
        self.generation = [(compute_capability(gpu) or (0, 0))[0] for gpu in node.gpus]
        self.switch = [gpu.switch_links for gpu in node.gpus]
        self.direct = [[_direct_links(graph, node, i, j) for j in span] for i in span]
        self.has_direct = any(map(any, self.direct))
        self.linked = [[i != j and node.nvlinks(i, j) > 0 for j in span] for i in span]
        self.affinity = [[self._affinity(node, i, j) for j in span] for i in span]
        self.hop_gb_per_s = [[0.0 if i == j else self._hop(graph, node, i, j) for j in span] for i in span]
        self.hops = Widths(self.hop_gb_per_s)
        self.nearness = Widths([[-affinity.distance for affinity in row] for row in self.affinity])

    def _affinity(self, node: NodeTopology, i: int, j: int) -> Affinity:
        return Affinity.NVLINK if i == j or self.linked[i][j] else PATH_AFFINITY[node.path(i, j)]

    def _hop(self, graph: nx.Graph[str], node: NodeTopology, i: int, j: int) -> float:
        one, other = node.gpus[i], node.gpus[j]
        over_links = node.nvlinks(i, j) * min(self.rate[i], self.rate[j])
        over_pcie = pcie_route_gb_per_s(graph, gpu_vertex(one), gpu_vertex(other))
        if not _peer_access(node, i, j):
            over_pcie = min(over_pcie, staged_gb_per_s(node, one), staged_gb_per_s(node, other))
        return max(over_links, over_pcie)

    def max_steps(self, members: int) -> int:
        """Return how long the search over one set may take, so that a plan over all sets of its size stays bounded."""
        return max(min(_STEPS_PER_PLAN // comb(self.count, members.bit_count()), MAX_STEPS), _STEPS_PER_SET)

    def tie(self, i: int, j: int) -> tuple[int, bool, Affinity, float]:
        """Return all that lies between two positions."""
        return self.direct[i][j], self.linked[i][j], self.affinity[i][j], self.hop_gb_per_s[i][j]

    def twins(self, i: int, j: int) -> bool:
        """Whether swapping positions `i` and `j` changes no prediction."""
        return (
            (self.rate[i], self.generation[i], self.switch[i]) == (self.rate[j], self.generation[j], self.switch[j])
            and all(self.tie(i, k) == self.tie(j, k) for k in range(self.count) if k not in (i, j))
        )  # fmt: skip


def predict(wiring: Wiring, members: int) -> tuple[Bandwidth, Affinity]:
    """Return the bandwidth of two or more GPUs (bit mask) and how near their best ring's farthest hop is.

    Exact with respect to the model, so it never rises when a link is removed and does not depend on the order of the GPUs.
    """
    over_pcie = _PCIE.of(wiring.hops.bottleneck(members))
    over_links = _over_switch(wiring, members) or _over_direct_links(wiring, members)
    if over_links is not None:
        return max(over_links, over_pcie, key=lambda found: found.point), Affinity.NVLINK
    return over_pcie, _AFFINITIES[-int(wiring.nearness.bottleneck(members))]


def ring_order(wiring: Wiring, members: int) -> tuple[int, ...]:
    """Return the members as neighbours on the ring that a job should use."""
    return wiring.hops.widest_ring(members)


def _over_switch(wiring: Wiring, members: int) -> Bandwidth | None:
    """On an NVSwitch a ring's rate depends neither on which GPUs take part nor on how many; in-switch reduction does."""
    vertices = members_of(members)
    links = min(wiring.switch[i] for i in vertices)
    if not links or not all(wiring.linked[i][j] for i in vertices for j in vertices if i != j):
        return None
    rate = links * min(wiring.rate[i] for i in vertices)
    generation = min(wiring.generation[i] for i in vertices)
    calibration = _SWITCH.get(generation, _SWITCH_DEFAULT)
    fewest, gain = _NVLS.get(generation, (wiring.count + 1, 0.0))
    if len(vertices) >= fewest:
        in_switch = gain * (len(vertices) - 1) / len(vertices)
        calibration = Calibration(max(calibration.factor, in_switch), calibration.low, calibration.high)
    return calibration.of(rate)


def _over_direct_links(wiring: Wiring, members: int) -> Bandwidth | None:
    channels = ring_channels(wiring.direct, members, wiring.max_steps(members)) if wiring.has_direct else 0
    if not channels:
        return None
    vertices = members_of(members)
    generation = min(wiring.generation[i] for i in vertices)
    return _DIRECT.get(generation, _DIRECT_DEFAULT).of(channels * min(wiring.rate[i] for i in vertices))


def _direct_links(graph: nx.Graph[str], node: NodeTopology, i: int, j: int) -> int:
    ends = gpu_vertex(node.gpus[i]), gpu_vertex(node.gpus[j])
    return int(graph.edges[ends]["count"]) if graph.has_edge(*ends) else 0


def _peer_access(node: NodeTopology, i: int, j: int) -> bool:
    known = node.pairs[min(i, j), max(i, j)].p2p
    if known is not None:
        return known
    found = [architecture_of(node.gpus[position].model) for position in (i, j)]
    return all(architecture is None or architecture.peer_access for architecture in found)
