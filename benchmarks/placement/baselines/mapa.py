"""MAPA: on one server, the ring with the most bandwidth (greedy), or with an eye on what stays free (preserve).

Source: socal-ucr/MAPA (BSD-3), `jobGenerator` (behaviour, read and not copied). Weights are GB/s of the NVLinks between two
GPUs, else 10. `greedy` maximises the sum along the ring. For jobs that are sensitive and have more than one GPU,
`preserve` maximises the predicted effective bandwidth. Otherwise it maximises the NVLink weight among the GPUs left,
equal ones by the sum along the ring. Only what beats the start counts, and `preserve` starts from the prediction of an
empty ring, 12.3. A sensitive job whose rings all predict less waits (two or three GPUs over PCIe only).

All sets and all orders of each are tried, as MAPA does: n! of n GPUs, so pods of more than eight take for ever.

Known deviations: sets are tried in index order, where MAPA takes the order of its graph matcher. The weights of other
machines than its five follow from links and generation. It sees one server, so a node rule goes before it: the fuller
node. In a fleet it is the node where what MAPA maximises is highest, or falls least by the pod, then the fuller. Equal
ones are drawn by lot. Yielding is preserve for pods that would rather run than wait: with no such ring on any node, they
take the greedy one.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, pairwise, permutations
from random import Random

from benchmarks.placement.baselines.stock import most_allocated
from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policy import NodeThenGpus, PodByPod, Rank, best_by_lot, fullest_gpus
from topology.bandwidth.rings import members_of
from topology.node.graph import compute_capability
from topology.node.model import NodeTopology
from topology.request.gpu_request import Communication

PCIE_WEIGHT = 10.0
_LINK_GB_PER_S = {6: 20.0, 7: 25.0, 8: 25.0, 9: 25.0, 10: 50.0}
"""Nominal rate of one NVLink in one direction, by compute capability; the first two are MAPA's own."""
Order = tuple[int, ...]


def effective_gb_per_s(double: int, single: int, pcie: int) -> float:
    """Return MAPA's prediction for a ring with so many double-NVLink, single-NVLink and PCIe edges; a fit, and not monotone.

    >>> round(effective_gb_per_s(0, 0, 0), 1), round(effective_gb_per_s(0, 3, 2), 1), round(effective_gb_per_s(3, 2, 0), 1)
    (12.3, 53.6, 51.8)
    """
    x, y, z = double, single, pcie
    return (
        16.39670455 * x
        + 4.536821878 * y
        + 1.55623404 * z
        - 20.69484581 / (x + 1)
        - 9.467461958 / (y + 1)
        + 7.615106783 / (z + 1)
        - 7.973335727 * x * y
        + 12.73323772 * y * z
        - 4.195655221 * x * z
        - 8.413419363 / (x * y + 1)
        + 62.85125807 / (y * z + 1)
        + 27.41832588 / (x * z + 1)
        - 5.114108079 * x * y * z
        - 46.97390071 / (x * y * z + 1)
    )


class Links:
    """A server as MAPA sees it."""

    def __init__(self, node: NodeTopology) -> None:
        rate = [_LINK_GB_PER_S.get((compute_capability(gpu) or (0, 0))[0], 25.0) for gpu in node.gpus]
        span = range(len(node))
        self.links = [[node.nvlinks(i, j) if i != j else 0 for j in span] for i in span]
        self.weight = [
            [self.links[i][j] * min(rate[i], rate[j]) or PCIE_WEIGHT if i != j else 0.0 for j in span] for i in span
        ]

    def aggregated(self, order: Order) -> float:
        """Return the sum of the weights along the ring; two GPUs have their link twice."""
        return sum(self.weight[i][j] for i, j in pairwise((*order, order[0]))) if len(order) > 1 else 0.0

    def predicted(self, order: Order) -> float:
        """Return the effective bandwidth that MAPA predicts for the ring."""
        counts = [self.links[i][j] for i, j in pairwise((*order, order[0]))]
        double, single = sum(count > 1 for count in counts), counts.count(1)
        return effective_gb_per_s(double, single, len(counts) - double - single)

    def best_predicted(self, gpus: Order) -> float:
        """Return the highest prediction of any ring over the GPUs."""
        return max(self.predicted((gpus[0], *rest)) for rest in permutations(gpus[1:]))

    def preserved(self, left: Order) -> float:
        """Return the NVLink weight among the GPUs left free."""
        return sum(self.weight[i][j] for i, j in combinations(left, 2) if self.links[i][j])


@lru_cache(maxsize=256)
def links_of(node: NodeTopology) -> Links:
    """Return the server's links, computed once."""
    return Links(node)


@lru_cache(maxsize=1 << 18)
def _rings(node: NodeTopology, chosen: Order) -> tuple[tuple[float, Order], tuple[float, Order]]:
    """Return the best ring over a set by its sum and by its prediction, the first of equals."""
    links = links_of(node)
    orders = [(chosen[0], *rest) for rest in permutations(chosen[1:])]
    by_sum, by_prediction = max(orders, key=links.aggregated), max(orders, key=links.predicted)
    return (links.aggregated(by_sum), by_sum), (links.predicted(by_prediction), by_prediction)


@lru_cache(maxsize=1 << 16)
def greedy(node: NodeTopology, free: int, gpus: int) -> Order:
    """Return the ring with the highest sum."""
    return max((_rings(node, chosen)[0] for chosen in combinations(members_of(free), gpus)), key=lambda ring: ring[0])[
        1
    ]


@lru_cache(maxsize=1 << 16)
def preserve(node: NodeTopology, free: int, gpus: int, *, sensitive: bool) -> Order | None:
    """Return MAPA-preserve's ring; `None` where nothing beats its start."""
    members = members_of(free)
    if sensitive and gpus > 1:
        rings = (_rings(node, chosen)[1] for chosen in combinations(members, gpus))
        value, order = max(rings, key=lambda ring: ring[0])
        return order if value > effective_gb_per_s(0, 0, 0) else None
    links = links_of(node)

    def left_then_sum(chosen: Order) -> tuple[float, float]:
        left = tuple(i for i in members if i not in chosen)
        return links.preserved(left), _rings(node, chosen)[0][0]

    return _rings(node, max(combinations(members, gpus), key=left_then_sum))[0][1]


def first_free(node: NodeTopology, free: int, gpus: int) -> Order:
    """Return MAPA's `baseline`: the lowest free GPUs, in their best order."""
    return _rings(node, members_of(free)[:gpus])[0][1] if gpus else ()


SOCKET_GPUS = 4


def topo_aware(node: NodeTopology, free: int, gpus: int) -> Order:
    """Return MAPA's `topoAware`: the first set within one socket for jobs smaller than a socket, else its baseline."""
    if gpus < SOCKET_GPUS:
        sockets = {gpu.numa_node for gpu in node.gpus}
        for socket in sorted(sockets, key=lambda found: -1 if found is None else found):
            inside = [i for i in members_of(free) if node.gpus[i].numa_node == socket]
            if len(inside) >= gpus:
                return _rings(node, tuple(inside[:gpus]))[0][1]
    return first_free(node, free, gpus)


class MapaPreserve(PodByPod):
    """MAPA-preserve behind a rule that takes one of the nodes where it finds a ring: the fuller one."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster)
        self._random = random
        self._known: dict[tuple[int, int, int, bool], Order | None] = {}

    def choose(self, pod: PodSize, job: Job) -> Allotment | None:
        """Return the place of one pod."""
        found = [
            (node, order) for node in self.cluster.fitting(pod) if (order := self._order(node, pod, job)) is not None
        ]
        if not found:
            return None
        node, order = best_by_lot(found, lambda each: self.rank(*each, pod, job), self._random)
        return Allotment(node.index, order, pod)

    def rank(self, node: ServerState, order: Order, pod: PodSize, job: Job) -> Rank:
        """Return how good a node is, the pod's GPUs on it known; the highest is taken."""
        return most_allocated(node, pod)

    def _order(self, node: ServerState, pod: PodSize, job: Job) -> Order | None:
        if pod.shares or not pod.gpus:
            return fullest_gpus(node, pod)
        sensitive = _is_sensitive(job)
        key = node.kind, node.free, pod.gpus, sensitive
        if key not in self._known:
            self._known[key] = preserve(node.server.topology, node.free, pod.gpus, sensitive=sensitive)
        return self._known[key]


class MapaPreserveFleet(MapaPreserve):
    """The same with nodes by MAPA's own score."""

    def rank(self, node: ServerState, order: Order, pod: PodSize, job: Job) -> Rank:
        """Return what MAPA maximises, or how far it falls, then the fuller node."""
        fuller = most_allocated(node, pod)
        if pod.shares or not order:
            return 0.0, fuller
        links = links_of(node.server.topology)
        if len(order) > 1 and _is_sensitive(job):
            return links.predicted(order), fuller
        left = tuple(i for i in node.free_positions if i not in order)
        return links.preserved(left) - links.preserved(node.free_positions), fuller


class MapaPreserveYielding(MapaPreserve):
    """The same for pods that would rather run on the greedy ring than wait."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster, random)
        self._otherwise = NodeThenGpus(cluster, random, most_allocated, greedy)

    def choose(self, pod: PodSize, job: Job) -> Allotment | None:
        """Return the place of one pod."""
        return super().choose(pod, job) or self._otherwise.choose(pod, job)


def _is_sensitive(job: Job) -> bool:
    """Whether MAPA would be told that bandwidth matters to the job."""
    return job.communication is Communication.HEAVY
