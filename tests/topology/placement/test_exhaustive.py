"""The chosen set is the best there is: against every set of machines of up to sixteen GPUs, under the model as it is."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from topology.bandwidth.rings import members_of
from topology.formats.catalog import machine
from topology.node.links import Affinity, PciePath
from topology.node.model import Gpu, Link, NodeTopology
from topology.placement.plan import plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest


def tree(i: int, j: int) -> PciePath:
    """Four to a switch, eight to a socket."""
    return PciePath.PIX if i // 4 == j // 4 else PciePath.NODE if i // 8 == j // 8 else PciePath.SYS


def sixteen(model: str, nvlinks: dict[tuple[int, int], int], p2p: bool | None = None) -> NodeTopology:
    gpus = tuple(Gpu(i, f"u{i}", model, numa_node=i // 8) for i in range(16))
    pairs = combinations(range(16), 2)
    return NodeTopology(gpus, tuple(Link(a, b, nvlinks.get((a, b), 0), tree(a, b), p2p) for a, b in pairs))


def scattered(seed: int) -> NodeTopology:
    """Sixteen cards with bridges where chance put them, no two GPUs alike."""
    random = Random(seed)
    bridges = {pair: random.choice((2, 4)) for pair in combinations(range(16), 2) if random.random() < 0.15}
    gpus = tuple(Gpu(i, f"u{i}", "NVIDIA A40", pcie_generation=random.choice((3, 4))) for i in range(16))
    links = (Link(a, b, bridges.get((a, b), 0), tree(a, b)) for a, b in combinations(range(16), 2))
    return NodeTopology(gpus, tuple(links))


SIXTEEN = {
    "dgx-2": machine("dgx-2"),
    "bridged pairs": sixteen("NVIDIA A100 80GB PCIe", {(i, i + 1): 12 for i in range(0, 16, 2)}),
    "switches without peer access": sixteen("NVIDIA GeForce RTX 4090", {}, p2p=False),
    "two cube meshes": sixteen(
        "Tesla V100-SXM2-32GB",
        {
            (a + side, b + side): machine("dgx-1v").nvlinks(a, b)
            for side in (0, 8)
            for a, b in combinations(range(8), 2)
        },
    ),
    "scattered bridges": scattered(1),
}


def best_by_looking_at_all(compiled: TopologyClass, free: int, size: int) -> float:
    sets = (sum(1 << i for i in chosen) for chosen in combinations(members_of(free), size))
    return max(compiled.predict(mask)[0].point for mask in sets)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIXTEEN)
def test_no_set_of_sixteen_gpus_is_faster_than_the_chosen_one(name: str) -> None:
    """All GPUs free and every third one busy; two to four, eight and sixteen asked for: 100 % of the best bandwidth."""
    compiled = TopologyClass(SIXTEEN[name])
    for free, sizes in ((0xFFFF, (2, 3, 4, 8, 16)), (0b1011011011011011, (2, 4, 6, 8))):
        for size in sizes:
            found = plan(compiled, free, GpuRequest(size, preferred=Affinity.NVLINK))
            assert isinstance(found, Placement) and found.bandwidth is not None
            assert found.bandwidth.point == best_by_looking_at_all(compiled, free, size)
