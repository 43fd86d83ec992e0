"""The NVLink islands of a node: which GPUs the links join, and how large a set the free ones still form."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from extender.cluster.candidates.shape import Shape
from extender.inspect.fragmentation import nvlink_request
from topology.node.model import NodeTopology
from topology.placement.verdict import Placement

SIZES: Final = (16, 8, 4, 2)
"""Of free islands that are looked for, the largest first."""


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


def largest_free_island(shape: Shape, held: int) -> int:
    """Return the largest of `SIZES` for which there is a free island; 1 or 0 where there is none."""
    free_gpus = shape.free_gpus & ~held
    sizes = (size for size in SIZES if size <= free_gpus.bit_count() and has_free_island(shape, held, size))
    return next(sizes, 1 if free_gpus else 0)
