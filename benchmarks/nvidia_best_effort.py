"""What NVIDIA's device plugin hands out once the node is fixed: its "best effort" allocation, as published behaviour.

Source: NVIDIA/go-gpuallocator, `besteffort_policy.go` and `device.go` (read, not copied). The kubelet passes the free GPUs in
random order; here they come by index, which is the plugin's best case. Links to an NVSwitch are not seen by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_Set = tuple[int | None, ...]


def pair_score(node: NodeTopology, i: int, j: int) -> int:
    """Return the plugin's score of two positions: PCIe nearness plus 100 for each straight NVLink."""
    return _PATH_SCORE[node.path(i, j)] + _LINK_SCORE * node.pairs[min(i, j), max(i, j)].nvlinks


def best_effort(node: NodeTopology, free: Sequence[int], gpus: int) -> tuple[int, ...]:
    """Return the positions that the plugin would choose, in order; empty when fewer are free.

    It splits all free GPUs into sets of the size asked for, takes the split with the highest total, and of that split the best
    set. The number of splits grows like n!; use it up to 8 GPUs.
    """
    if gpus <= 0 or len(free) < gpus:
        return ()
    if gpus == 1:
        return (free[0],)
    slots: list[int | None] = [*free, *[None] * (-len(free) % gpus)]
    padding = slots.count(None)
    best: tuple[int, list[_Set]] | None = None
    for partition in _partitions(slots, gpus):
        if any(0 < chosen.count(None) < padding for chosen in partition):
            continue
        if all(None in chosen for chosen in partition):
            continue
        total = sum(_set_score(node, chosen) for chosen in partition)
        if best is None or total > best[0]:
            best = (total, partition)
    if best is None:
        return ()
    chosen = max(best[1], key=lambda candidate: _set_score(node, candidate))
    return tuple(position for position in chosen if position is not None)


def _set_score(node: NodeTopology, chosen: _Set) -> int:
    real = [position for position in chosen if position is not None]
    return sum(pair_score(node, i, j) for index, i in enumerate(real) for j in real[index + 1 :])


def _partitions(slots: list[int | None], size: int) -> Iterator[list[_Set]]:
    """Yield each split into sets of `size`; the first slot left always opens the next set."""
    if not slots:
        yield []
        return
    first, *others = slots
    for members in combinations(range(len(others)), size - 1):
        chosen = (first, *(others[i] for i in members))
        left = [slot for i, slot in enumerate(others) if i not in members]
        for rest in _partitions(left, size):
            yield [chosen, *rest]
