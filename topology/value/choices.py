"""Sets of GPUs of a large node, one for all that are alike.

It counts how many are taken of each kind of block, not of which.

Of 32 GPUs behind eight like switches there are 10 million sets of eight, and some sixty that differ. Blocks are alike if
they are built alike (`topology.node.alike`) and their GPUs are in the same states. A state is free or not, and what else
tells GPUs apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import factorial, prod
from typing import Any

from topology.bandwidth.rings import members_of
from topology.node.alike import Block

MAX_TAKINGS = 2_000
"""Of blocks that are alike inside, such as sockets: so many ways to take GPUs of them are compared, some milliseconds."""

Taking = tuple[int, int]
"""How many GPUs are taken, and which, as a mask."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """What may be taken of one block."""

    takings: Sequence[Taking]
    """Most GPUs first; all blocks in one state have theirs in one order."""
    alike_after: int
    """So many slots that follow are in the same state: of takings that are swapped among them one order is looked at."""


class TooManyChoices(Exception):
    """More than are compared."""


class Choices:
    """The ways to take GPUs of some blocks."""

    def __init__(self, blocks: Sequence[Block], open_: int, marks: Sequence[int], size: int) -> None:
        """Take `size` of the open GPUs; of `marks` each tells its members from all others."""
        self._blocks = blocks
        self._open = open_
        self._cells = _cells((open_, *marks))
        self._size = size
        self._states: dict[int, Any] = {}
        self.takings = 0
        """Looked at so far."""

    @property
    def swaps(self) -> int:
        """In how many ways blocks can be swapped: each set has no more than so many that are like it."""
        return prod(map(self._swaps, self._blocks))

    def __iter__(self) -> Iterator[int]:
        """Yield one set for all that are alike, mostly the one with the lowest positions; raises `TooManyChoices`."""
        if self._open.bit_count() < self._size:
            return
        slots = [slot for block in self._blocks for slot in self._slots((block,))]
        for _, mask in _taken(slots, self._size, self._size):
            yield mask

    def _slots(self, parts: Sequence[Block]) -> list[_Slot]:
        slots = []
        for _, group in groupby(sorted(parts, key=self._state, reverse=True), key=self._state):
            like = [*group]
            if len(like) == 1 and like[0].parts:
                slots += self._slots(like[0].parts)
            else:
                slots += [_Slot(self._takings(part), len(like) - 1 - place) for place, part in enumerate(like)]
        return slots

    def _takings(self, block: Block) -> list[Taking]:
        if not block.parts:
            open_ = members_of(block.members & self._open)[: self._size]
            return [*enumerate([0, *accumulate(1 << i for i in open_)])][::-1]
        found = []
        elsewhere = (self._open & ~block.members).bit_count()
        for taking in _taken(self._slots(block.parts), self._size - elsewhere, self._size):
            found.append(taking)
            self.takings += 1
            if self.takings > MAX_TAKINGS:
                raise TooManyChoices
        return sorted(found, key=lambda taking: -taking[0])  # stable, so in one order for all blocks in this state

    def firsts(self) -> Iterator[int]:
        """Yield an open position for all that are alike, the lowest mostly."""
        for block in self._blocks:
            yield from self._firsts(block)

    def _firsts(self, block: Block) -> Iterator[int]:
        open_ = block.members & self._open
        if open_ and block.parts:
            for part in {self._state(part): part for part in reversed(block.parts)}.values():
                yield from self._firsts(part)
        elif open_:
            yield (open_ & -open_).bit_length() - 1

    def _state(self, block: Block) -> Any:
        found = self._states.get(block.members)
        if found is None:
            if block.parts:
                found = tuple(sorted(map(self._state, block.parts), reverse=True))
            else:
                found = tuple((block.members & cell).bit_count() for cell in self._cells)
            self._states[block.members] = found
        return found

    def _swaps(self, block: Block) -> int:
        of_each = Counter(map(self._state, block.parts))
        return prod(map(factorial, of_each.values())) * prod(map(self._swaps, block.parts))


def _cells(marks: Sequence[int]) -> list[int]:
    """Return the GPUs with something to tell them apart, by what that is; those of one cell are in the same masks."""
    cells: list[int] = []
    for mark in marks:
        known = sum(cells)
        cells = [part for cell in cells for part in (cell & mark, cell & ~mark) if part]
        cells += [mark & ~known] if mark & ~known else []
    return cells


def _taken(slots: Sequence[_Slot], least: int, most: int) -> Iterator[Taking]:
    """Yield the ways to take `least` to `most` GPUs of the slots."""
    beyond = [*accumulate((slot.takings[0][0] for slot in reversed(slots)), initial=0)][::-1]

    def taken(place: int, start: int, least: int, most: int) -> Iterator[Taking]:
        if not most or place == len(slots):
            if least <= 0:
                yield 0, 0
            return
        slot = slots[place]
        after = place + 1 + slot.alike_after
        for number in range(start, len(slot.takings)):
            count, mask = slot.takings[number]
            if count * (1 + slot.alike_after) + beyond[after] < least:
                return
            if count > most:
                continue
            onwards = (place + 1, number) if count and slot.alike_after else (after, 0)
            for more, others in taken(*onwards, least - count, most - count):
                yield count + more, mask | others

    return taken(0, 0, least, most)
