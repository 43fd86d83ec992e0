"""Which GPUs of a machine are alike, and which groups of them: a large machine is mostly a small one many times over.

Things are alike if swapping two of them changes nothing for the others. GPUs that are alike make up a block; blocks that are
alike make up a larger one, and so on. 32 GPUs behind eight switches at two sockets are one block: of two, of four, of four GPUs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Ties = Sequence[Sequence[int]]
"""What lies between any two, as numbers: equal numbers for equal ties. Symmetric."""


@dataclass(frozen=True, slots=True)
class Block:
    """GPUs that count as one, mostly a single one, or parts that are alike."""

    members: int
    """Mask over positions."""
    parts: tuple[Block, ...] = ()
    """In the order of their lowest members."""

    @property
    def first(self) -> int:
        """The lowest position."""
        return (self.members & -self.members).bit_length() - 1

    @property
    def samples(self) -> tuple[int, ...]:
        """Positions that stand for all: of each two parts, and of each two parts of these."""
        return tuple(i for part in self.parts[:2] for i in part.samples) or (self.first,)


def blocks_of(kinds: Sequence[Hashable], ties: Ties, groups: Sequence[int] | None = None) -> tuple[Block, ...]:
    """Return the largest blocks; `kinds` tells GPUs apart whose ties are the same.

    `groups` are masks of those that count as one, whose kinds and ties are the same; without it each GPU stands for itself.

    >>> blocks_of("aaaa", [[0, 1, 2, 2], [1, 0, 2, 2], [2, 2, 0, 1], [2, 2, 1, 0]])[0].parts[1]
    Block(members=12, parts=(Block(members=4, parts=()), Block(members=8, parts=())))
    """
    found = [Block(group) for group in groups or [1 << i for i in range(len(kinds))]]
    kinds = [(kinds[block.first], block.members.bit_count(), _within(ties, block)) for block in found]
    while True:
        first = [block.first for block in found]
        rows = [[ties[one][other] for other in first] for one in first]
        together = alike(kinds, rows)
        if len(together) == len(found):
            return tuple(found)
        # What lies between its parts belongs to what a block is.
        kinds = [(kinds[group[0]], len(group), rows[group[0]][group[-1]] if group[1:] else None) for group in together]
        found = [_joined([found[i] for i in group]) for group in together]


def unlike(blocks: Sequence[Block]) -> int:
    """Return of how many GPUs a machine consists that stand for all others."""
    return sum(len(block.samples) for block in blocks)


def alike(kinds: Sequence[Hashable], ties: Ties) -> list[list[int]]:
    """Return the groups of those that can be swapped with every other one kept in place, by their lowest."""
    groups: list[list[int]] = []
    candidates: dict[Hashable, list[list[int]]] = {}
    for i, (kind, row) in enumerate(zip(kinds, ties, strict=True)):
        others = tuple(sorted([*row[:i], *row[i + 1 :]]))  # the same for both, so few have to be compared
        for group in candidates.setdefault((kind, others), []):
            a = group[0]
            known = ties[a]
            if known[:a] == row[:a] and known[a + 1 : i] == row[a + 1 : i] and known[i + 1 :] == row[i + 1 :]:
                group.append(i)
                break
        else:
            groups.append([i])
            candidates[kind, others].append(groups[-1])
    return groups


def _within(ties: Ties, group: Block) -> int:
    """Return what lies between two of a group, or one and itself."""
    return ties[group.first][group.members.bit_length() - 1]


def _joined(parts: list[Block]) -> Block:
    return parts[0] if len(parts) == 1 else Block(sum(part.members for part in parts), tuple(parts))
