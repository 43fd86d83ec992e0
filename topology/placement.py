"""The one function that decides: the best set of a node's free GPUs for a request, or the reason why there is none.

Filter, prioritize, bind, simulation and command line all call `plan`; there is no second opinion. It is exact: among all sets
of the free GPUs that satisfy the request it takes the one with the highest predicted bandwidth; ties go to the set that leaves
more value, then to the lowest positions. Interchangeable GPUs are tried once. Plans are memoised per topology class.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from weakref import WeakValueDictionary

from topology.bandwidth import Bandwidth, Wiring, predict, ring_order
from topology.links import Affinity
from topology.market import Offer, Table, value_table
from topology.model import NodeTopology
from topology.nvidia_best_effort import Outcome
from topology.request import Communication, GpuRequest, NicAffinity
from topology.rings import members_of
from topology.suitability import anonymous, gpus_near_nic, kinds, outdated, suitable_gpus
from topology.symmetry import Counts, Symmetry, subsets, ways
from topology.value import Weights, formula, score, worth

MAX_PLANS = 50_000
"""Remembered per class, so that users' ever new wishes do not fill the memory; about 0.4 KB each."""
MAX_SETS = 20_000
"""Sets that one search looks at; 16 GPUs without any two alike have 12,870 of eight."""
SETS_WEIGHED = 16
"""Sets of equal bandwidth whose remainder is valued; each costs about a millisecond the first time."""


class Reason(StrEnum):
    """Why a node does not fit, in words that metrics can count."""

    CLOSED = "closed"
    """What is known of the node does not allow a decision; said by whoever keeps that knowledge."""
    NO_GPUS = "no-gpus"
    TOO_FEW_FREE = "too-few-free"
    UNSUITABLE_GPUS = "unsuitable-gpus"
    DRIVER = "driver"
    NIC = "nic"
    AFFINITY = "affinity"
    BANDWIDTH = "bandwidth"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Placement:
    """The chosen GPUs, as positions in ring order."""

    gpus: tuple[int, ...]
    affinity: Affinity | None
    """How near the ring's farthest hop is; `None` for one GPU."""
    bandwidth: Bandwidth | None
    """`None` for one GPU."""
    score: float
    """Higher is better; comparable between nodes."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """No set of the free GPUs satisfies the request."""

    reason: Reason
    message: str
    """Short, lower case, without names, so that kube-scheduler can count equal ones."""
    resolvable: bool = False
    """Whether removing pods could cure it."""


class TopologyClasses:
    """Hands out one compiled `TopologyClass` for all nodes that are wired and equipped alike."""

    def __init__(self, weights: Weights = Weights()) -> None:  # noqa: B008 - a frozen value
        self._weights = weights
        self._known: WeakValueDictionary[NodeTopology, TopologyClass] = WeakValueDictionary()
        """Those that somebody still has: a node that changes all the time leaves nothing behind."""

    def of(self, node: NodeTopology) -> TopologyClass:
        """Return the class of a node; identity (UUIDs, PCI addresses, NIC names) makes no difference."""
        nameless = anonymous(node)
        known = self._known.get(nameless)
        if known is None:
            known = self._known[nameless] = TopologyClass(nameless, self._weights)
        return known

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[TopologyClass]:
        return iter([*self._known.values()])


class TopologyClass:
    """What plans need of a topology, compiled once, and the plans made so far."""

    def __init__(self, node: NodeTopology, weights: Weights = Weights()) -> None:  # noqa: B008
        self.node = node
        self.weights = weights
        self.wiring = Wiring(node)
        self.near_nic = gpus_near_nic(node)
        self._predictions: dict[int, tuple[Bandwidth, Affinity]] = {}
        self._best_sets: dict[tuple[int, int], tuple[int, float] | None] = {}
        self._values: dict[int, float] = {}
        self._plans: dict[tuple[int, GpuRequest], Placement | Rejection] = {}
        self.forecasts: dict[tuple[int, GpuRequest], Placement | Rejection] = {}
        """Those of `forecast`, forgotten together with the plans."""
        self.outcomes: dict[tuple[int, int], tuple[Outcome, ...]] = {}
        """What NVIDIA's plugin may do with some free GPUs and a size."""
        self._symmetry = Symmetry(self.wiring, kinds(node))
        self.table: Table | None = None
        """The value of free sets, by how many GPUs of each group of twins are free."""
        self.appraised: Weights | None = None
        """What `appraise` has been through with."""

    def predict(self, mask: int) -> tuple[Bandwidth, Affinity]:
        """Return bandwidth and affinity of the set, two or more GPUs."""
        found = self._predictions.get(mask)
        if found is None:
            found = self._predictions[mask] = predict(self.wiring, mask)
        return found

    def value(self, free: int) -> float:
        """Return what the free GPUs are worth to pods still to come: computed once `appraise` is through, by formula before."""
        found = self._values.get(free)
        if found is None:
            if self.table is not None:
                found = self.table.get(self._symmetry.canonical(self._symmetry.counts(free)))
            if found is None:  # no table, or a set that no pod of the mix ever leaves behind
                found = formula(free, self.weights, self._best_set)
            self._values[free] = found
        return found

    def appraise(self, weights: Weights) -> Generator[None]:
        """Compute the value of every free set for this demand, in the steps of `value_table`.

        Scores change when the last step is done, all at once. Machines with too many different free sets keep the formula.
        """
        table = yield from value_table(self._symmetry, self._offers(weights))
        self.weights = self.appraised = weights
        self.table = table
        self._values.clear()
        self._best_sets.clear()
        self._plans.clear()
        self.forecasts.clear()

    def _offers(self, weights: Weights) -> list[Offer]:
        fitting = [(size, share) for size, share in weights.demand if size <= len(self.node) and share > 0]
        return [Offer(size, share, self._sets_for(size, weights)) for size, share in fitting]

    def _sets_for(self, size: int, weights: Weights) -> Callable[[Counts], list[tuple[Counts, float]]]:
        """Return which sets a pod to come would take of some free ones, with their worth; as `plan` does it."""

        @cache
        def sets(free: Counts) -> list[tuple[Counts, float]]:
            masks = self.subsets(self._symmetry.set_of(free), size)
            if size == 1:
                return [(self._symmetry.counts(mask), worth(1, None, weights)) for mask in masks]
            predicted = {mask: self.predict(mask)[0] for mask in masks}
            best = max((bandwidth.point for bandwidth in predicted.values()), default=0.0)
            return [
                (self._symmetry.counts(mask), worth(size, bandwidth, weights))
                for mask, bandwidth in predicted.items()
                if bandwidth.point == best
            ]

        return sets

    def subsets(self, free: int, size: int) -> list[int]:
        """Return the sets of `size` free GPUs as masks, only one of those that differ by interchangeable GPUs.

        That one has the lowest positions. Grows with the number of GPUs that are wired differently, not with the node. Where
        there are more than `MAX_SETS`, only the sets that grow from each GPU along its fastest hops.
        """
        if ways(self._symmetry.counts(free), size) > MAX_SETS:
            return sorted({self._grow(1 << i, free, size) for i in members_of(free)})
        return subsets([group & free for group in self._symmetry.groups], size)

    def plan(self, free: int, request: GpuRequest) -> Placement | Rejection:
        """Return `plan(self, free, request)`, remembered."""
        key = (free, request)
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            found = self._plans[key] = _search(self, free, request)
        return found

    def _best_set(self, free: int, size: int) -> tuple[int, float] | None:
        key = (free, size)
        if key not in self._best_sets:
            self._best_sets[key] = self._find_best_set(free, size)
        return self._best_sets[key]

    def _find_best_set(self, free: int, size: int) -> tuple[int, float] | None:
        """Grow a set from each free GPU along its fastest hops and keep the fastest set; quick, and not always the best."""
        if free.bit_count() < size:
            return None
        if size == 1:
            return free & -free, worth(1, None, self.weights)
        seeds = (group & free & -(group & free) for group in self._symmetry.groups if group & free)
        grown = {self._grow(seed, free, size) for seed in seeds}
        best = max(grown, key=lambda mask: (self.predict(mask)[0].point, _lowest_first(mask)))
        return best, worth(size, self.predict(best)[0], self.weights)

    def _grow(self, chosen: int, free: int, size: int) -> int:
        pull = [0.0] * len(self.node)
        last = chosen.bit_length() - 1
        for _ in range(size - 1):
            pull = [sum(pair) for pair in zip(pull, self.wiring.hop_gb_per_s[last], strict=True)]
            last = max(members_of(free & ~chosen), key=lambda i: (pull[i], -i))
            chosen |= 1 << last
        return chosen

    def cut_gb_per_s(self, chosen: int, free: int) -> float:
        """Return the sum of the hops between the chosen GPUs and the free ones that stay behind."""
        left = members_of(free & ~chosen)
        return sum(self.wiring.hop_gb_per_s[i][j] for i in members_of(chosen) for j in left)


def plan(topology_class: TopologyClass, free: int, request: GpuRequest) -> Placement | Rejection:
    """Return the best placement of the request on the free GPUs (bit mask over positions), or why there is none.

    Exact; a repeated question is a table look-up.
    """
    return topology_class.plan(free, request)


def _search(topology_class: TopologyClass, free: int, request: GpuRequest) -> Placement | Rejection:
    node, size = topology_class.node, request.gpus
    if not node.gpus:
        return Rejection(Reason.NO_GPUS, "node has no GPUs")
    if older := outdated(node, request):
        return Rejection(Reason.DRIVER, older)
    suitable = suitable_gpus(node, request)
    if suitable.bit_count() < size:
        message = f"only {suitable.bit_count()} GPUs of the node are as asked for, pod needs {size}"
        return Rejection(Reason.UNSUITABLE_GPUS, message)
    if request.nic is NicAffinity.REQUIRED:
        suitable &= topology_class.near_nic
        if suitable.bit_count() < size:
            message = f"only {suitable.bit_count()} GPUs have an RDMA NIC under their PCIe switch, pod needs {size}"
            return Rejection(Reason.NIC, message)
    usable = free & suitable
    if usable.bit_count() < size:
        return Rejection(
            Reason.TOO_FEW_FREE, f"only {usable.bit_count()} suitable GPUs are free, pod needs {size}", resolvable=True
        )
    if size == 0:
        return Placement((), None, None, 0.0)
    if size == 1:
        return _best_single(topology_class, free, usable, request)
    return _best_many(topology_class, free, usable, request)


def _best_single(topology_class: TopologyClass, free: int, usable: int, request: GpuRequest) -> Placement:
    sets = topology_class.subsets(usable, 1)
    near_nic = [mask for mask in sets if mask & topology_class.near_nic] if request.nic else []
    chosen = _kindest(topology_class, free, near_nic or sets)
    return Placement(members_of(chosen), None, None, _score(topology_class, free, chosen, None, request))


def _best_many(topology_class: TopologyClass, free: int, usable: int, request: GpuRequest) -> Placement | Rejection:
    fastest_gb_per_s = 0.0
    best: tuple[float, ...] = ()
    tied: list[int] = []
    for mask in topology_class.subsets(usable, request.gpus):
        bandwidth, affinity = topology_class.predict(mask)
        if request.required is not None and not affinity.meets(request.required):
            continue
        fastest_gb_per_s = max(fastest_gb_per_s, bandwidth.point)
        if bandwidth.point < (request.min_bandwidth_gb_per_s or 0.0):
            continue
        merit = _merit(topology_class, mask, bandwidth, affinity, request)
        if merit > best:
            best, tied = merit, []
        if merit == best:
            tied.append(mask)
    if not tied:
        return _too_slow(fastest_gb_per_s, request) if fastest_gb_per_s else _too_far(topology_class, usable, request)
    chosen = _kindest(topology_class, free, tied)
    bandwidth, affinity = topology_class.predict(chosen)
    order = ring_order(topology_class.wiring, chosen)
    return Placement(order, affinity, bandwidth, _score(topology_class, free, chosen, bandwidth, request))


def _merit(
    topology_class: TopologyClass, mask: int, bandwidth: Bandwidth, affinity: Affinity, request: GpuRequest
) -> tuple[float, ...]:
    """Return what is compared first; sets of equal merit are told apart by what they leave to others."""
    if request.communication is Communication.NONE:
        return ()
    wished = request.preferred is not None and affinity.meets(request.preferred)
    near_nic = (mask & topology_class.near_nic).bit_count() if request.nic else 0
    return wished, bandwidth.point, near_nic


def _kindest(topology_class: TopologyClass, free: int, sets: list[int]) -> int:
    """Return the set that leaves most value, then the lowest one.

    Of many sets only the `SETS_WEIGHED` that tear the fewest GB/s off the GPUs left behind are weighed.
    """
    if len(sets) == 1:
        return sets[0]
    by_cut = sorted(sets, key=lambda mask: (topology_class.cut_gb_per_s(mask, free), -_lowest_first(mask)))
    return max(
        by_cut[:SETS_WEIGHED],
        key=lambda mask: (round(topology_class.value(free & ~mask), 9), _lowest_first(mask)),
    )


def _too_slow(fastest_gb_per_s: float, request: GpuRequest) -> Rejection:
    message = f"best free set is predicted {fastest_gb_per_s:.4g} GB/s, pod needs {request.min_bandwidth_gb_per_s:.12g}"
    return Rejection(Reason.BANDWIDTH, message, resolvable=True)


def _score(
    topology_class: TopologyClass, free: int, chosen: int, bandwidth: Bandwidth | None, request: GpuRequest
) -> float:
    lost = topology_class.value(free) - topology_class.value(free & ~chosen)
    return score(request.gpus, bandwidth, request.communication, lost, topology_class.weights)


def _too_far(topology_class: TopologyClass, usable: int, request: GpuRequest) -> Rejection:
    """Say how large a set of the wanted affinity is free, which is the number people need."""
    wanted = request.required
    assert wanted is not None

    def reaches(size: int) -> bool:
        return any(topology_class.predict(mask)[1].meets(wanted) for mask in topology_class.subsets(usable, size))

    words = {
        Affinity.NVLINK: "an NVLink ring",
        Affinity.PCIE_SWITCH: "one PCIe switch",
        Affinity.NUMA_NODE: "one NUMA node",
    }
    largest = next(filter(reaches, range(request.gpus - 1, 1, -1)), None)
    most = f"at most {largest} of the" if largest else "no two"
    message = f"{most} free GPUs share {words[wanted]}, pod needs {request.gpus}"
    return Rejection(Reason.AFFINITY, message, resolvable=True)


def _lowest_first(mask: int) -> int:
    """Order masks of equal size so that the greatest is the lexicographically lowest list of positions."""
    return int(f"{mask:064b}"[::-1], 2)
