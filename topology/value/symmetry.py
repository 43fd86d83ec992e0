"""Which GPUs of a machine can stand in for which: what is worked out for one set then holds for all sets like it.

Two levels. GPUs are interchangeable if they can be swapped with every other GPU kept in place. They form groups, and a
set is identified by how many it takes of each. Groups may in turn be swapped as a whole, such as the halves of a machine
with two sockets.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from topology.bandwidth.predict import Wiring
from topology.node.alike import alike
from topology.node.model import MAX_GPUS

Counts = tuple[int, ...]
"""GPUs taken of each group, in the order of `Symmetry.groups`."""

MAX_SWAPS = 720
"""Swaps of groups that are looked for. Fewer than there are cost look-ups, never correctness."""
LOOKS_PER_STEP = 8
MAX_LOOKS = 80_000
"""Ties that are compared for them, some milliseconds: a forged topology can have n! that all come to nothing at the end."""


class Symmetry:
    """The groups of interchangeable GPUs of one machine, and the ways to swap the groups."""

    def __init__(self, wiring: Wiring, kinds: Sequence[Hashable]) -> None:
        """Find them; `kinds` tells GPUs apart that are wired alike."""
        self.groups = _interchangeable_groups(wiring, kinds)
        """Masks over positions, by lowest member."""
        self.sizes: Counts = tuple(group.bit_count() for group in self.groups)
        self._swaps = _swaps(wiring, kinds, self.groups)
        self._canonical: dict[Counts, Counts] = {}

    @property
    def least_sets(self) -> int:
        """How many sets there are at least, without those that are alike."""
        return prod(size + 1 for size in self.sizes) // len(self._swaps)

    def counts(self, mask: int) -> Counts:
        """Return how many GPUs of each group are in the set."""
        return tuple((group & mask).bit_count() for group in self.groups)

    def set_of(self, counts: Counts) -> int:
        """Return the set with so many of each group, the lowest positions of each."""
        return sum(lowest(group, count) for group, count in zip(self.groups, counts, strict=True))

    def canonical(self, counts: Counts) -> Counts:
        """Return one representative of all counts that are alike; memoised."""
        found = self._canonical.get(counts)
        if found is None:
            found = self._canonical[counts] = min(tuple(counts[i] for i in swap) for swap in self._swaps)
        return found

    def least(self, first: Counts, others: Sequence[Counts]) -> tuple[Counts, tuple[Counts, ...]]:
        """Return one representative of all that are alike: of a set, canonical by itself, and others beside it in any order."""
        return min(
            (tuple(first[i] for i in swap), tuple(sorted(tuple(each[i] for i in swap) for each in others)))
            for swap in self._swaps
        )


def subsets(groups: Sequence[int], size: int) -> list[int]:
    """Return one set for every way to take `size` GPUs of what each group (mask) has: its lowest positions.

    >>> [bin(mask) for mask in subsets((0b0011, 0b0100), 2)]
    ['0b101', '0b11']
    """
    filled = [*filter(None, groups)]
    middle = len(filled) // 2
    # What no half can make up for is not begun: so there are no more halves than sets.
    room_before, room = (sum(group.bit_count() for group in half) for half in (filled[:middle], filled[middle:]))
    later: dict[int, list[int]] = {}
    for taken, total in _takings(filled[middle:], size - room_before, size):
        later.setdefault(total, []).append(taken)
    return [
        taken | more
        for taken, total in _takings(filled[:middle], size - room, size)
        for more in later.get(size - total, ())
    ]


def _takings(groups: Sequence[int], least: int, most: int) -> list[tuple[int, int]]:
    """Return all ways to take `least` to `most` GPUs of the groups, as masks with their sizes."""
    partial: list[tuple[int, int]] = [(0, 0)]
    still_to_come = sum(group.bit_count() for group in groups)
    for group in groups:
        still_to_come -= group.bit_count()
        partly = [*enumerate(lowest(group, count) for count in range(group.bit_count() + 1))]
        partial = [
            (taken | more, total + count)
            for taken, total in partial
            for count, more in partly[: most - total + 1]
            if total + count >= least - still_to_come
        ]
    return partial


def lowest_first(mask: int) -> int:
    """Order masks of equal size so that the greatest is the lexicographically lowest list of positions."""
    return int(f"{mask:0{MAX_GPUS}b}"[::-1], 2)


def ways(available: Sequence[int], size: int) -> int:
    """Return how many sets `subsets` would find of groups with so many GPUs, without finding them."""
    found = [1] + [0] * size
    for count in available:
        found = [sum(found[max(0, total - count) : total + 1]) for total in range(size + 1)]
    return found[size]


def lowest(group: int, count: int) -> int:
    """Return so many positions of a mask, the lowest; all that it has where these are fewer."""
    kept = group
    for _ in range(group.bit_count() - count):
        kept ^= 1 << kept.bit_length() - 1
    return kept


def _interchangeable_groups(wiring: Wiring, kinds: Sequence[Hashable]) -> tuple[int, ...]:
    own = [*zip(kinds, wiring.rate, wiring.capability, wiring.switch, strict=True)]
    return tuple(sum(1 << i for i in group) for group in alike(own, wiring.ties))


def _swaps(wiring: Wiring, kinds: Sequence[Hashable], groups: Sequence[int]) -> list[tuple[int, ...]]:
    """Return permutations of the groups that keep every tie between GPUs, the identity first; at most `MAX_SWAPS`."""
    first = [(group & -group).bit_length() - 1 for group in groups]
    ties = [[wiring.ties[a][b] for b in first] for a in first]
    last = [group.bit_length() - 1 for group in groups]
    alone = [
        (kinds[a], wiring.generation[a], wiring.rate[a], wiring.switch[a], group.bit_count(), wiring.ties[a][b])
        for a, b, group in zip(first, last, groups, strict=True)
    ]
    like = [[group for group, own in enumerate(alone) if own == alone[place]] for place in range(len(groups))]
    found: list[tuple[int, ...]] = []
    looks = 0

    def extend(swap: tuple[int, ...]) -> None:
        nonlocal looks
        place = len(swap)
        if place == len(groups):
            found.append(swap)
            return
        row = ties[place]
        for group in like[place]:
            looks += 1 + place
            if len(found) >= MAX_SWAPS or looks > MAX_LOOKS:
                return
            image = ties[group]
            if group not in swap and all(row[before] == image[at] for before, at in enumerate(swap)):
                extend((*swap, group))

    extend(())
    wiring.meter.steps += looks // LOOKS_PER_STEP
    return found
