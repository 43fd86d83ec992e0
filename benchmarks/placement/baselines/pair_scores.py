"""Numbers that several peers give to two GPUs, and groups of GPUs by how near they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import combinations

from topology.node.links import PciePath
from topology.node.model import NodeTopology
from topology.placement.nvidia_best_effort import pair_score


@lru_cache(maxsize=4096)
def pair_scores(node: NodeTopology) -> tuple[tuple[int, ...], ...]:
    """Return go-gpuallocator's score of each pair: PCIe affinity plus 100 for each straight NVLink; 0 with itself."""
    span = range(len(node))
    return tuple(tuple(pair_score(node, i, j) if i != j else 0 for j in span) for i in span)


def total(scores: tuple[tuple[int, ...], ...], chosen: Iterable[int]) -> int:
    """Return the sum over the pairs of a set."""
    return sum(scores[i][j] for i, j in combinations(chosen, 2))


def groups(members: Iterable[int], joined: Callable[[int, int], bool]) -> list[tuple[int, ...]]:
    """Split the members into groups that hang together over joined pairs; lowest member first.

    >>> groups([0, 1, 2, 3], lambda i, j: (i, j) in {(0, 2), (2, 3)})
    [(0, 2, 3), (1,)]
    """
    left = sorted(members)
    found = []
    while left:
        group = [left.pop(0)]
        for member in group:
            near = [other for other in left if joined(min(member, other), max(member, other))]
            group += near
            left = [other for other in left if other not in near]
        found.append(tuple(sorted(group)))
    return found


def switch_groups(node: NodeTopology) -> list[tuple[int, ...]]:
    """Return the GPUs under the same PCIe switch or switches."""
    return groups(range(len(node)), lambda i, j: node.path(i, j) <= PciePath.PXB)


def socket_groups(node: NodeTopology) -> list[tuple[int, ...]]:
    """Return the GPUs of the same socket, or NUMA node."""
    return groups(range(len(node)), lambda i, j: node.path(i, j) <= PciePath.NODE)


def widest_link(node: NodeTopology) -> int:
    """Return the most NVLinks that any two GPUs have between them."""
    return max((node.nvlinks(i, j) for i, j in combinations(range(len(node)), 2)), default=0)


def linked_pairs(node: NodeTopology) -> list[tuple[int, ...]]:
    """Split the GPUs of each socket into pairs on the machine's widest NVLinks, lowest first; none where some are left over."""
    widest, left = widest_link(node), set(range(len(node)))
    found: list[tuple[int, ...]] = []
    for socket in socket_groups(node):
        for i, j in combinations(socket, 2):
            if i in left and j in left and widest and node.nvlinks(i, j) == widest:
                left -= {i, j}
                found.append((i, j))
    return [] if left else found
