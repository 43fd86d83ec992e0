"""Which GPUs of a machine can stand in for which: what is worked out for one set then holds for all sets like it.

Two levels. GPUs are interchangeable if they can be swapped with every other GPU kept in place; they form groups, and a set is
told by how many it takes of each. Groups may in turn be swapped as a whole, such as the halves of a machine with two sockets.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from topology.bandwidth.predict import Wiring

Counts = tuple[int, ...]
"""GPUs taken of each group, in the order of `Symmetry.groups`."""

MAX_SWAPS = 720
"""Swaps of groups that are looked for. Fewer than there are cost look-ups, never correctness."""
MAX_TRIES = 4_000
"""Beginnings of swaps that are tried for them: a forged topology can have n! that all come to nothing at the end."""


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
        return sum(_lowest(group, count) for group, count in zip(self.groups, counts, strict=True))

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
    room = sum(group.bit_count() for group in filled[middle:])
    later: dict[int, list[int]] = {}
    for taken, total in _takings(filled[middle:], 0, size):
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
        lowest = [*enumerate(_lowest(group, count) for count in range(group.bit_count() + 1))]
        partial = [
            (taken | more, total + count)
            for taken, total in partial
            for count, more in lowest[: most - total + 1]
            if total + count >= least - still_to_come
        ]
    return partial


def lowest_first(mask: int) -> int:
    """Order masks of equal size so that the greatest is the lexicographically lowest list of positions."""
    return int(f"{mask:064b}"[::-1], 2)


def ways(available: Sequence[int], size: int) -> int:
    """Return how many sets `subsets` would find of groups with so many GPUs, without finding them."""
    found = [1] + [0] * size
    for count in available:
        found = [sum(found[max(0, total - count) : total + 1]) for total in range(size + 1)]
    return found[size]


def _lowest(group: int, count: int) -> int:
    kept = group
    for _ in range(group.bit_count() - count):
        kept ^= 1 << kept.bit_length() - 1
    return kept


def _interchangeable_groups(wiring: Wiring, kinds: Sequence[Hashable]) -> tuple[int, ...]:
    groups: list[int] = []
    for position, kind in enumerate(kinds):
        for index, group in enumerate(groups):
            member = group.bit_length() - 1
            if kinds[member] == kind and wiring.interchangeable(member, position):
                groups[index] |= 1 << position
                break
        else:
            groups.append(1 << position)
    return tuple(groups)


def _swaps(wiring: Wiring, kinds: Sequence[Hashable], groups: Sequence[int]) -> list[tuple[int, ...]]:
    """Return permutations of the groups that keep every tie between GPUs, the identity first; at most `MAX_SWAPS`."""
    first = [(group & -group).bit_length() - 1 for group in groups]
    ties = [[wiring.tie(a, b) for b in first] for a in first]
    last = [group.bit_length() - 1 for group in groups]
    alone = [
        (kinds[a], wiring.generation[a], wiring.rate[a], wiring.switch[a], group.bit_count(), wiring.tie(a, b))
        for a, b, group in zip(first, last, groups, strict=True)
    ]
    found: list[tuple[int, ...]] = []
    tries = 0

    def extend(swap: tuple[int, ...]) -> None:
        nonlocal tries
        tries += 1
        if len(found) >= MAX_SWAPS or tries > MAX_TRIES:
            return
        place = len(swap)
        if place == len(groups):
            found.append(swap)
            return
        for group in range(len(groups)):
            if (
                group not in swap
                and alone[group] == alone[place]
                and all(ties[before][place] == ties[image][group] for before, image in enumerate(swap))
            ):
                extend((*swap, group))

    extend(())
    return found
