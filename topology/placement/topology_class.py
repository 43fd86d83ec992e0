"""What is known of all machines that are wired and equipped alike: compiled once, and remembered together.

Predictions, values of free sets and plans of one class hold for every node of it. Interchangeable GPUs are tried once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

from topology.bandwidth import Bandwidth, Wiring, predict
from topology.links import Affinity, PciePath
from topology.market import Offer, Table, value_table
from topology.model import NodeTopology
from topology.placement.nvidia_best_effort import Outcome, outcomes
from topology.rings import members_of
from topology.suitability import anonymous, gpus_near_nic, kinds
from topology.symmetry import Counts, Symmetry, lowest_first, subsets, ways
from topology.value import Weights, formula, worth

Answer = TypeVar("Answer")
About = TypeVarTuple("About")

MAX_ANSWERS = 50_000
"""Remembered per class, so that users' ever new requests do not fill the memory; about 0.4 KB each."""
MAX_SETS = 20_000
"""Sets that one search looks at; 16 GPUs without any two alike have 12,870 of eight."""


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
    """What plans need of a topology, compiled once, and what was found on it so far."""

    def __init__(self, node: NodeTopology, weights: Weights = Weights()) -> None:  # noqa: B008
        self.node = node
        self.weights = weights
        self.wiring = Wiring(node)
        self.near_nic = gpus_near_nic(node)
        self._predictions: dict[int, tuple[Bandwidth, Affinity]] = {}
        self._best_sets: dict[tuple[int, int], tuple[int, float] | None] = {}
        self._values: dict[int, float] = {}
        self._answers: dict[tuple[object, ...], Any] = {}
        """Those of `recall`, which rest on the values."""
        self._outcomes: dict[tuple[int, int], tuple[Outcome, ...]] = {}
        self._symmetry = Symmetry(self.wiring, kinds(node))
        self._numa_nodes = _numa_nodes(node)
        self._alike = [group & near for group in self._symmetry.groups for near in self._numa_nodes if group & near]
        """Masks of GPUs that neither wires, requests nor NUMA nodes tell apart."""
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

    def recall(self, question: Callable[[TopologyClass, *About], Answer], *about: *About) -> Answer:
        """Return what `question` answers about this class; asked again, it is a table look-up until the values change."""
        known, key = self._answers, (question, about)
        found: Answer | None = known.get(key)
        if found is None:
            if len(known) >= MAX_ANSWERS:
                known.clear()
            found = known[key] = question(self, *about)
        return found

    def outcomes(self, free: int, gpus: int) -> tuple[Outcome, ...]:
        """Return what NVIDIA's plugin may do with these free GPUs and a size, the likeliest first."""
        key = free, gpus
        if key not in self._outcomes:
            if len(self._outcomes) >= MAX_ANSWERS:
                self._outcomes.clear()
            self._outcomes[key] = outcomes(self.node, free, gpus)
        return self._outcomes[key]

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

    def value_lost(self, free: int, chosen: int) -> float:
        """Return what the pods to come lose of the free GPUs if these are taken."""
        return self.value(free) - self.value(free & ~chosen)

    def appraise(self, weights: Weights) -> Generator[None]:
        """Compute the value of every free set for this demand, in the steps of `value_table`.

        Scores change when the last step is done, all at once. Machines with too many different free sets keep the formula.
        """
        table = yield from value_table(self._symmetry, self._offers(weights))
        self.weights = self.appraised = weights
        self.table = table
        self._values.clear()
        self._best_sets.clear()
        self._answers.clear()

    def _offers(self, weights: Weights) -> list[Offer]:
        fitting = [(size, share) for size, share in weights.demand if size <= len(self.node) and share > 0]
        return [Offer(size, share, self._sets_for(size, weights)) for size, share in fitting]

    def _sets_for(self, size: int, weights: Weights) -> Callable[[Counts], list[tuple[Counts, float]]]:
        """Return which sets a pod to come would take of some free ones, with their worth; as `plan` does it."""

        @cache
        def sets(free: Counts) -> list[tuple[Counts, float]]:
            masks = self._subsets(self._symmetry.groups, self._symmetry.set_of(free), size)
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

    def subsets(self, free: int, size: int, must: int = 0) -> list[int]:
        """Return the sets of `size` free GPUs as masks, only one of those that differ by interchangeable GPUs of a NUMA node.

        Those of `must` are in each of them; what is left of interchangeable ones is still interchangeable.
        That one has the lowest positions. Grows with the number of GPUs that are wired differently, not with the node. Where
        there are more than `MAX_SETS`, only the sets that grow from each GPU along its fastest hops.
        """
        return self._subsets(self._alike, free, size, must)

    def _subsets(self, groups: Sequence[int], free: int, size: int, must: int = 0) -> list[int]:
        free, size = free & ~must, size - must.bit_count()
        left = [group & free for group in groups]
        if ways([group.bit_count() for group in left], size) > MAX_SETS:
            return sorted({self._grow(must | 1 << i, free, size - 1) for i in members_of(free)})
        return [must | mask for mask in subsets(left, size)] if must else subsets(left, size)

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
        grown = {self._grow(seed, free, size - 1) for seed in seeds}
        best = max(grown, key=lambda mask: (self.predict(mask)[0].point, lowest_first(mask)))
        return best, worth(size, self.predict(best)[0], self.weights)

    def _grow(self, chosen: int, free: int, more: int) -> int:
        """Add so many of the free GPUs, each along the fastest hops to those before it."""
        pull = [0.0] * len(self.node)
        new = members_of(chosen)
        for _ in range(more):
            for last in new:
                pull = [sum(pair) for pair in zip(pull, self.wiring.hop_gb_per_s[last], strict=True)]
            new = (max(members_of(free & ~chosen), key=lambda i: (pull[i], -i)),)
            chosen |= 1 << new[0]
        return chosen

    def spread(self, chosen: int, free: int) -> tuple[int, int]:
        """Return how many NUMA nodes the chosen GPUs lie in, and how many GPUs were free there."""
        touched = [node for node in self._numa_nodes if node & chosen]
        return len(touched), sum((node & free).bit_count() for node in touched)

    def cut_gb_per_s(self, chosen: int, free: int) -> float:
        """Return the sum of the hops between the chosen GPUs and the free ones that stay behind."""
        left = members_of(free & ~chosen)
        return sum(self.wiring.hop_gb_per_s[i][j] for i in members_of(chosen) for j in left)


def _numa_nodes(node: NodeTopology) -> tuple[int, ...]:
    """Return the GPUs of each NUMA node as masks; what is not known to be near counts as another."""
    span = range(len(node))
    near = [sum(1 << j for j in span if i == j or node.path(i, j) <= PciePath.NODE) for i in span]
    return tuple(sum(1 << i for i in span if near[i] == row) for row in dict.fromkeys(near))
