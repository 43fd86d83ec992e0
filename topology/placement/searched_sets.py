"""Which sets of a machine's GPUs a search looks at: one of those that are alike, and not too many.

On machines of up to 16 GPUs those count as one that differ by GPUs that nothing tells apart. On larger ones whole blocks
of GPUs count as alike, too, such as PCIe switches. So the search grows with what differs, and not with the node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice

from topology.bandwidth.predict import Wiring
from topology.bandwidth.rings import members_of
from topology.effort import Search
from topology.node.alike import Block, blocks_of
from topology.value.choices import Choices, TooManyChoices
from topology.value.symmetry import lowest, subsets, ways

MAX_SETS = 20_000
"""Sets that one search looks at; 16 GPUs without any two alike have 12,870 of eight."""
MAX_ONE_BY_ONE = 16
"""GPUs of a machine up to which only GPUs are exchanged, and no blocks."""
CHOICE_STEPS = 8
"""Of one set of a large machine: it is put together from its blocks."""


class SearchedSets:
    """The sets of one machine; `alike` are the GPUs that nothing tells apart, as masks.

    `is_uniform` says that no wire and no request tells any two GPUs apart, as on an NVSwitch.
    """

    def __init__(
        self,
        wiring: Wiring,
        kinds: Sequence[Hashable],
        alike: Sequence[int],
        numa_nodes: Sequence[int],
        *,
        is_uniform: bool,
    ) -> None:
        self._wiring = wiring
        self.is_uniform = is_uniform
        self._meter = wiring.meter
        self._alike = alike
        self.blocks: tuple[Block, ...] = ()
        """What of a large machine can be exchanged as a whole."""
        if wiring.count > MAX_ONE_BY_ONE:
            numa_node = [next(node for node, of in enumerate(numa_nodes) if of >> i & 1) for i in range(wiring.count)]
            ties = [
                [2 * tie + (own == other) for tie, other in zip(row, numa_node, strict=True)]
                for row, own in zip(wiring.ties, numa_node, strict=True)
            ]
            own = [*zip(kinds, wiring.rate, wiring.capability, wiring.switch, strict=True)]
            self.blocks = blocks_of(own, ties, alike)

    def search(self, free: int, size: int, must: int, marks: Sequence[int] | None) -> Search[list[int]]:
        """Search for the sets of `size` free GPUs, those of `must` in each of them, as masks.

        `marks` are masks whose members differ from other GPUs for this search; with `None` no blocks are exchanged. Where there
        are more sets than `MAX_SETS`, only those that grow from each GPU along its fastest hops.
        """
        free, more = free & ~must, size - must.bit_count()
        left = [group & free for group in self._alike]
        self._meter.steps += 4 * len(left)
        count = ways([group.bit_count() for group in left], more)
        found: list[int] = []
        if self.blocks and marks is not None and count > 1:
            found = yield from self._of_blocks(free, more, (must, *marks), count)
        if not found and count <= MAX_SETS:
            found = subsets(left, more)
            self._meter.steps += len(found) // 4
        if found or not count:
            return [must | mask for mask in found] if must else found
        grown = set()
        for i in members_of(free):
            grown.add(self.grow(must | 1 << i, free, more - 1))
            yield
        return sorted(grown)

    def _of_blocks(self, free: int, size: int, marks: Sequence[int], count: int) -> Search[list[int]]:
        """Put the sets together from blocks; none where there are more than `MAX_SETS`."""
        choices = Choices(self.blocks, free, marks, size)
        if count > MAX_SETS * choices.swaps:
            return []
        found = []
        try:
            for mask in islice(choices, MAX_SETS + 1):
                found.append(mask)
                self._meter.steps += CHOICE_STEPS
                yield
        except TooManyChoices:
            return []
        finally:
            self._meter.steps += CHOICE_STEPS * choices.takings
        return found if len(found) <= MAX_SETS else []

    def some_of(self, free: int) -> int:
        """Return the free GPUs to begin sets with: where blocks are exchanged, one for all that are alike."""
        if not self.blocks or self.is_uniform:
            return free
        self._meter.steps += 2 * len(self._alike)
        return sum(1 << i for i in Choices(self.blocks, free, (), 1).firsts())

    def grow(self, chosen: int, free: int, more: int) -> int:
        """Add so many of the free GPUs, each along the fastest hops to those before it."""
        if self.is_uniform:
            return chosen | lowest(free & ~chosen, more)
        hops = self._wiring.hop_gb_per_s
        self._meter.steps += (more + 1) * (4 + len(hops) // 4 + (len(hops) // MAX_ONE_BY_ONE) ** 2)
        pull = [0.0] * len(hops)
        new = members_of(chosen)
        for _ in range(more):
            for last in new:
                pull = [sum(pair) for pair in zip(pull, hops[last], strict=True)]
            new = (max(members_of(free & ~chosen), key=lambda i: (pull[i], -i)),)
            chosen |= 1 << new[0]
        return chosen
