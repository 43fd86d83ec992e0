"""What NVIDIA's device plugin hands out once the node is fixed: its "best effort" allocation, as published behaviour.

Source: NVIDIA/go-gpuallocator, `besteffort_policy.go` and `device.go` (read, not copied); the plugin itself agrees on hundreds of
random requests (`tests/cluster/nodes`). Links to an NVSwitch are not seen by it. It takes the first of equals, and the
kubelet passes the free GPUs in random order. So its choice is a chance and no fact, and `outcomes` says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import merge
from itertools import combinations, islice, permutations
from typing import Final

from topology.bandwidth.rings import Meter, members_of
from topology.effort import Search, finish
from topology.node.links import PciePath
from topology.node.model import NodeTopology

SAMPLES: Final = 64
"""Orders that are tried where there are too many for all; a set that comes up once in twenty is missed once in 27."""
MAX_EXACT: Final = 4
"""GPUs up to which all orders are tried."""
MAX_MODELLED: Final = 10
"""Free GPUs up to which splits are searched, some milliseconds; beyond, any set counts as possible."""
ORDER_STEPS: Final = 300
"""Of finding out what the plugin does with one order."""

_PATH_SCORE = {
    PciePath.SYS: 10,
    PciePath.NODE: 20,
    PciePath.PHB: 30,
    PciePath.PXB: 40,
    PciePath.PIX: 50,
    PciePath.INTERNAL: 60,
}
_LINK_SCORE = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """One set that the plugin may hand out."""

    gpus: int
    """Mask over positions."""
    share: float
    """How often, 0..1."""


def pair_score(node: NodeTopology, i: int, j: int) -> int:
    """Return the plugin's score of two positions: PCIe affinity plus 100 for each straight NVLink."""
    return _PATH_SCORE[node.path(i, j)] + _LINK_SCORE * node.pairs[min(i, j), max(i, j)].nvlinks


def best_effort(node: NodeTopology, free: Sequence[int], gpus: int) -> tuple[int, ...]:
    """Return the positions that the plugin would choose when it gets `free` in this order; empty when they are too few.

    It splits all free GPUs into sets of the requested size and takes the split with the highest total. Of that split it
    takes the best set. In both the first of equals wins. Empty slots, which fill up the last set, stay together. The
    plugin tries every split, which grows like n!. Here the best split of what is left is looked up, which grows like 2^n:
    16 GPUs take seconds at worst.
    """
    return Splits(node, gpus).choose(free)


def outcomes(node: NodeTopology, free: int, gpus: int) -> tuple[Outcome, ...]:
    """Return what the plugin may hand out of the free GPUs (mask), the likeliest first; empty when they are too few.

    Exact for single GPUs and up to `MAX_EXACT` free ones, else from the same `SAMPLES` orders every time.
    """
    return finish(searched_outcomes(node, free, gpus, Meter()))


def any_of(free: int, gpus: int) -> tuple[Outcome, ...]:
    """Return every set of the free GPUs (mask), each as likely: what a plugin without a preference hands out.

    >>> any_of(0b101, 1)
    (Outcome(gpus=1, share=0.5), Outcome(gpus=4, share=0.5))
    """
    masks = [_mask(chosen) for chosen in combinations(members_of(free), gpus)]
    return tuple(Outcome(mask, 1 / len(masks)) for mask in masks)


def searched_outcomes(node: NodeTopology, free: int, gpus: int, meter: Meter) -> Search[tuple[Outcome, ...]]:
    """Search for `outcomes`."""
    positions = members_of(free)
    if gpus <= 0 or len(positions) < gpus:
        return ()
    if gpus == 1:
        return any_of(free, gpus)
    splits = Splits(node, gpus)
    modelled = len(positions) <= MAX_MODELLED
    counted: Counter[int] = Counter()
    for order in _orders(positions):
        counted[_mask(splits.choose(order) if modelled else order[:gpus])] += 1
        meter.steps += ORDER_STEPS
        yield
    ranked = sorted(counted, key=lambda mask: (-counted[mask], mask))
    return tuple(Outcome(mask, counted[mask] / counted.total()) for mask in ranked)


def _orders(positions: tuple[int, ...]) -> list[tuple[int, ...]]:
    if len(positions) <= MAX_EXACT:
        return list(permutations(positions))
    return list(islice(_shuffles(positions), SAMPLES))


def _shuffles(positions: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield random orders, always the same ones (Fisher and Yates, on Knuth's 64-bit linear congruence)."""
    state = 1
    while True:
        order = list(positions)
        for last in range(len(order) - 1, 0, -1):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            place = (state >> 33) % (last + 1)
            order[last], order[place] = order[place], order[last]
        yield tuple(order)


class Splits:
    """The splits of one node's GPUs into sets of one size; the best totals do not depend on any order and are kept."""

    def __init__(self, node: NodeTopology, gpus: int) -> None:
        self._size = gpus
        self._pair_score = cache(lambda i, j: pair_score(node, i, j))
        self._totals: dict[tuple[int, int], int] = {}

    def choose(self, free: Sequence[int]) -> tuple[int, ...]:
        """Return the best set of the first best split."""
        if self._size <= 0 or len(free) < self._size:
            return ()
        if self._size == 1:
            return (free[0],)
        return max(self._first_best(tuple(free), -len(free) % self._size), key=self._score)

    def _first_best(self, left: tuple[int, ...], slots: int) -> Iterator[tuple[int, ...]]:
        """Yield the sets, without the one with empty slots, of the first split with the highest total."""
        while left:
            wanted = self._total(_mask(left), slots)
            for members, empty in self._sets(left, slots):
                rest = tuple(position for position in left if position not in members)
                if self._score(members) + self._total(_mask(rest), slots - empty) == wanted:
                    break
            if not empty:
                yield members
            left, slots = rest, slots - empty

    def _total(self, left: int, slots: int) -> int:
        if not left:
            return 0
        key = left, slots
        if key not in self._totals:
            self._totals[key] = max(
                self._score(members) + self._total(left & ~_mask(members), slots - empty)
                for members, empty in self._sets(members_of(left), slots)
            )
        return self._totals[key]

    def _sets(self, left: tuple[int, ...], slots: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield each set with the first GPU that is left, and how many empty slots are in it: none or all of them."""
        first, *others = left
        # Slots come last, so that a set with them is met after those that begin alike without.
        last = tuple(range(len(others), len(others) + slots))
        full = combinations(range(len(others)), self._size - 1)
        some = (picked + last for picked in combinations(range(len(others)), self._size - 1 - slots) if slots)
        for picked in merge(full, some):
            members = (first, *(others[i] for i in picked if i < len(others)))
            yield members, self._size - len(members)

    def _score(self, members: tuple[int, ...]) -> int:
        return sum(self._pair_score(i, j) for i, j in combinations(members, 2))


def _mask(positions: Sequence[int]) -> int:
    return sum(1 << position for position in positions)
