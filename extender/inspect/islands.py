"""The NVLink islands of a node: which GPUs the links join, and how large a set the free ones still form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from extender.cluster.candidates.shape import Shape
from extender.inspect.fragmentation import nvlink_request
from topology.node.model import NodeTopology
from topology.placement.verdict import Placement


def islands_of(node: NodeTopology) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the GPUs that NVLinks join, island by island; a GPU without NVLinks is one of its own."""
    islands, left = list[tuple[int, ...]](), [*range(len(node.gpus))]
    while left:
        island, border = set[int](), [left[0]]
        while border:
            here = border.pop()
            island.add(here)
            left.remove(here)
            border += [there for there in left if there not in border and node.nvlinks(here, there)]
        islands.append(tuple(sorted(island)))
    return tuple(islands)


def has_free_island(shape: Shape, held: int, gpus: int) -> bool:
    """Whether a pod that requires NVLink between so many GPUs fits on those that are free and not `held`.

    Not where the search for such a set is larger than one call, and goes on.
    """
    free = replace(shape, free=shape.free & ~held) if held else shape
    return isinstance(free.decide(nvlink_request(gpus)), Placement)


def largest_free_island(shape: Shape, held: int, islands: Iterable[tuple[int, ...]]) -> int:
    """Return the largest number of GPUs for which there is a free island; 1 or 0 where there is none.

    `islands` are those of the node: no set of free GPUs is larger than what is free of one.
    """
    free_gpus = shape.free_gpus & ~held
    largest = max((sum(free_gpus >> place & 1 for place in island) for island in islands), default=0)
    sizes = (size for size in range(largest, 1, -1) if has_free_island(shape, held, size))
    return next(sizes, 1 if free_gpus else 0)
