"""Amaral's TOPO-AWARE and TOPO-AWARE-P: the machine and GPUs with the highest utility of three costs.

Source: HiEST/gpu-topo-aware (Apache-2.0; SC'17), scheduler and cost functions (behaviour, read and not copied). Costs are
floored at 0.01. Communication = pair distances (1 in a socket, 20 across) above the least possible, over 20 for each GPU.
Interference is with jobs in the same socket. Fragmentation = mean over the sockets of the GPUs left free. Utility = 1 / Σ
cost^w over its greatest possible value; w = 1/3 each. The system utility, which chooses, has all three; the job utility
leaves fragmentation out. TOPO-AWARE places at once, TOPO-AWARE-P only where the job utility is no less than the job's
minimum.

Known deviations: all machines and combinations are compared. The source bisects the machines and keeps the better half,
so its result can only be worse. The source's table of distances is that of one machine, and its general form is a guess.
It is by the machine's own sockets or, with `by_links`, by links. Then it is 1 on the widest NVLinks, 2 on narrower ones,
5 under a PCIe switch, 10 in a socket, 20 across. That is the same on that machine. Jobs whose interference nobody has
profiled have none. Jobs may have more than three GPUs. Waiting jobs stand in one queue, in order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from random import Random

from benchmarks.placement.baselines.pair_scores import socket_groups, total, widest_link
from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policy import PodByPod, fullest_gpus
from topology.bandwidth.rings import members_of
from topology.node.links import PciePath
from topology.node.model import NodeTopology

FLOOR = 0.01
NEAR, FAR = 1, 20
NARROWER_LINK, SAME_SWITCH, SAME_SOCKET = 2, 5, 10


def utility(*costs: float) -> float:
    """Return Amaral's utility of costs that weigh alike: 1 where all are at the floor.

    >>> round(utility(0.0, 0.0), 3), round(utility(0.475, 0.0), 3)
    (1.0, 0.253)
    """
    weight = 1.0 / len(costs)
    terms = [math.pow(max(cost, FLOOR), weight) for cost in costs]
    return len(costs) * math.pow(FLOOR, weight) / sum(terms)


@lru_cache(maxsize=256)
def distances(node: NodeTopology, *, by_links: bool = False) -> tuple[tuple[int, ...], ...]:
    """Return the distance of each two GPUs; 0 from itself."""
    widest, span = widest_link(node) if by_links else 0, range(len(node))

    def between(i: int, j: int) -> int:
        path, links = node.path(i, j), node.nvlinks(i, j) if by_links else 0
        if links:
            return NEAR if links == widest else NARROWER_LINK
        if path > PciePath.NODE:
            return FAR
        return (SAME_SWITCH if path <= PciePath.PXB else SAME_SOCKET) if by_links else NEAR

    return tuple(tuple(between(i, j) if i != j else 0 for j in span) for i in span)


def communication_cost(node: NodeTopology, chosen: tuple[int, ...], *, by_links: bool = False) -> float:
    """Return how far the set is from the nearest possible one of its size, 0 or more."""
    if len(chosen) < 2:
        return 0.0
    least = _least_distance(node, len(chosen), by_links=by_links)
    return (total(distances(node, by_links=by_links), chosen) - least) / (FAR * len(chosen))


def fragmentation_cost(sockets: Sequence[tuple[int, ...]], left: int) -> float:
    """Return the mean over the sockets of the part of their GPUs that is free."""
    shares = [sum(left >> i & 1 for i in socket) / len(socket) for socket in sockets]
    return sum(shares) / len(shares)


@lru_cache(maxsize=1 << 16)
def best_set(
    node: NodeTopology, free: int, gpus: int, *, by_links: bool = False
) -> tuple[float, float, tuple[int, ...]]:
    """Return the system utility, the job utility and the GPUs of the best set, the first of equals in index order."""
    sockets = socket_groups(node)

    def system(chosen: tuple[int, ...]) -> float:
        left = free & ~sum(1 << i for i in chosen)
        return utility(communication_cost(node, chosen, by_links=by_links), 0.0, fragmentation_cost(sockets, left))

    chosen = max(combinations(members_of(free), gpus), key=system)
    return system(chosen), utility(communication_cost(node, chosen, by_links=by_links), 0.0), chosen


class TopoAware(PodByPod):
    """TOPO-AWARE; with `patient`, TOPO-AWARE-P."""

    def __init__(self, cluster: Cluster, random: Random, *, patient: bool = False, by_links: bool = False) -> None:
        super().__init__(cluster)
        self._patient = patient
        self._by_links = by_links
        self._known: dict[tuple[int, int, int], tuple[float, float, tuple[int, ...]]] = {}

    def choose(self, pod: PodSize, job: Job) -> Allotment | None:
        """Return the place of one pod; the first machine of equals."""
        fitting = self.cluster.fitting(pod)
        if not fitting:
            return None
        if pod.shares or not pod.gpus:
            return Allotment(fitting[0].index, fullest_gpus(fitting[0], pod), pod)
        node = max(fitting, key=lambda node: self._best(node, pod)[0])
        _, for_job, gpus = self._best(node, pod)
        if self._patient and for_job < job.minimal_utility:
            return None
        return Allotment(node.index, gpus, pod)

    def _best(self, node: ServerState, pod: PodSize) -> tuple[float, float, tuple[int, ...]]:
        key = node.kind, node.free, pod.gpus
        if key not in self._known:
            self._known[key] = best_set(node.server.topology, node.free, pod.gpus, by_links=self._by_links)
        return self._known[key]


@lru_cache(maxsize=4096)
def _least_distance(node: NodeTopology, gpus: int, *, by_links: bool) -> int:
    known = distances(node, by_links=by_links)
    return min(total(known, chosen) for chosen in combinations(range(len(node)), gpus))
