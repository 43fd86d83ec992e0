"""What NVIDIA's device plugin hands out once the node is fixed: its "best effort" allocation, as published behaviour.

Source: NVIDIA/go-gpuallocator, `besteffort_policy.go` and `device.go` (read, not copied). The kubelet passes the free GPUs in
random order; here they come by index, which is the plugin's best case. Links to an NVSwitch are not seen by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from topology.links import PciePath
from topology.model import NodeTopology

_PATH_SCORE = {
    PciePath.SYS: 10,
    PciePath.NODE: 20,
    PciePath.PHB: 30,
    PciePath.PXB: 40,
    PciePath.PIX: 50,
    PciePath.INTERNAL: 60,
}
_LINK_SCORE = 100


def pair_score(node: NodeTopology, i: int, j: int) -> int:
    """Return the plugin's score of two positions: PCIe nearness plus 100 for each straight NVLink."""
    return _PATH_SCORE[node.path(i, j)] + _LINK_SCORE * node.pairs[min(i, j), max(i, j)].nvlinks


def best_effort(node: NodeTopology, free: Sequence[int], gpus: int) -> tuple[int, ...]:
    """Return the positions that the plugin would choose, in order; empty when fewer are free.

    It splits all free GPUs into sets of the size asked for, takes the split with the highest total, and of that split the best
    set; the first of equals in both. Empty slots, which fill up the last set, stay together. The plugin tries every split, which
    grows like n!; here the best split of what is left is looked up, which grows like 2^n: 16 GPUs take seconds at worst.
    """
    if gpus <= 0 or len(free) < gpus:
        return ()
    if gpus == 1:
        return (free[0],)
    split = _Splits(node, tuple(free), gpus).best(tuple(range(len(free))), slots=-len(free) % gpus).sets
    return max(split, key=lambda positions: _set_score(node, positions))


@dataclass(frozen=True, slots=True)
class _Split:
    total: int
    sets: tuple[tuple[int, ...], ...]
    """Those without empty slots."""


class _Splits:
    """The best splits of parts of the free GPUs, each worked out once."""

    def __init__(self, node: NodeTopology, free: tuple[int, ...], gpus: int) -> None:
        self._free = free
        self._size = gpus
        self._scores = [[pair_score(node, i, j) if i != j else 0 for j in free] for i in free]
        self._known: dict[tuple[tuple[int, ...], int], _Split] = {}

    def best(self, left: tuple[int, ...], slots: int) -> _Split:
        """Return the first split with the highest total; the first GPU left always opens the next set."""
        if not left:
            return _Split(0, ())
        known = self._known.get((left, slots))
        if known is None:
            known = self._known[left, slots] = self._search(left, slots)
        return known

    def _search(self, left: tuple[int, ...], slots: int) -> _Split:
        first, *others = left
        top: _Split | None = None
        # Slots come last, so that a set with them is met after those that begin alike without.
        for picked in combinations(range(len(others) + slots), self._size - 1):
            members = (first, *(others[i] for i in picked if i < len(others)))
            empty = self._size - len(members)
            if empty not in (0, slots):
                continue
            rest = self.best(tuple(i for i in others if i not in members), slots - empty)
            total = rest.total + sum(self._scores[i][j] for i, j in combinations(members, 2))
            if top is None or total > top.total:
                whole = () if empty else (tuple(self._free[i] for i in members),)
                top = _Split(total, (*whole, *rest.sets))
        assert top is not None, "all slots fit into one set"
        return top


def _set_score(node: NodeTopology, chosen: tuple[int, ...]) -> int:
    return sum(pair_score(node, i, j) for i, j in combinations(chosen, 2))
