"""The five servers of MAPA's simulations, and three on which links hardly matter.

The 16-GPU graphs are MAPA's own inventions (`src/GpuTopology.hh`, BSD-3: facts taken, 1-based there): V100 with double and single
links, everything else over PCIe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Final

from topology.formats.catalog import machine
from topology.node.links import PciePath
from topology.node.model import Link, NodeTopology

_TORUS_DOUBLE = "1-2 1-13 2-3 3-4 4-16 5-6 6-7 7-8 9-10 10-11 11-12 13-14 14-15 15-16"
_TORUS_SINGLE = "1-4 2-6 2-14 3-7 3-15 4-8 5-9 5-8 6-10 7-11 8-12 9-13 9-12 10-14 11-15 12-16 13-16"
_CUBE_DOUBLE = "1-4 2-3 5-6 5-16 7-8 8-13 9-11 10-11 13-14 13-16 15-16"
_CUBE_SINGLE = "1-2 1-3 1-12 2-4 2-6 3-10 3-7 4-9 6-7 6-8 5-8 5-7 7-14 9-10 9-12 10-12 10-14 11-15 14-15 14-16 13-15"


def _sixteen(double: str, single: str) -> NodeTopology:
    """Return 16 V100 with these links, in four sockets of four: MAPA's topoAware takes them for such, so others may see them."""
    board = machine("dgx-2")
    gpus = tuple(replace(gpu, switch_links=0, numa_node=gpu.index // 4) for gpu in board.gpus)
    counts = dict.fromkeys(_pairs(double), 2) | dict.fromkeys(_pairs(single), 1)
    links = tuple(
        Link(i, j, counts.get((i, j), 0), PciePath.NODE if i // 4 == j // 4 else PciePath.SYS)
        for i, j in combinations(range(16), 2)
    )
    return replace(board, gpus=gpus, links=links, nics=())


def _pairs(text: str) -> list[tuple[int, int]]:
    found = (tuple(sorted(int(end) - 1 for end in word.split("-"))) for word in text.split())
    return [(first, second) for first, second in found]


SERVERS: Final[Mapping[str, Callable[[], NodeTopology]]] = MappingProxyType(
    {
        "dgx-1v": partial(machine, "dgx-1v"),
        "dgx-1p": partial(machine, "dgx-1p"),
        "summit": partial(machine, "ac922-6"),
        "torus-2d": partial(_sixteen, _TORUS_DOUBLE, _TORUS_SINGLE),
        "cube-mesh-16": partial(_sixteen, _CUBE_DOUBLE, _CUBE_SINGLE),
        "hgx-h100": partial(machine, "hgx-h100"),
        "l40s-8": partial(machine, "l40s-8"),
        "a100-pcie-8-pairs": partial(machine, "a100-pcie-8-pairs"),
    }
)
