"""Machines of many GPUs: regular ones by their levels, as real ones are, and nearly regular ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, combinations
from math import prod
from operator import mul

from hypothesis import strategies as st

from topology.node.links import PciePath
from topology.node.model import Gpu, Link, NodeTopology

UUID = "GPU-00000000-0000-4000-8000-{:012x}"


def nvswitch(gpus: int, numa_nodes: int = 1) -> NodeTopology:
    """Return GPUs that an NVSwitch joins, on so many NUMA nodes."""
    each = gpus // numa_nodes
    found = nested((each, numa_nodes), (PciePath.NODE, PciePath.SYS), "NVIDIA H200", each)
    return replace(found, gpus=tuple(replace(gpu, switch_links=18) for gpu in found.gpus))


def pcie_tree(to_a_switch: int, switches_to_a_socket: int, sockets: int, model: str = "NVIDIA A40") -> NodeTopology:
    """Return cards behind equal PCIe switches."""
    levels = to_a_switch, switches_to_a_socket, sockets
    paths = PciePath.PIX, PciePath.NODE, PciePath.SYS
    return nested(levels, paths, model, to_a_switch * switches_to_a_socket)


def nested(levels: Sequence[int], paths: Sequence[PciePath], model: str, to_a_numa_node: int) -> NodeTopology:
    """Return GPUs in groups of groups: `levels` has how many, from the innermost on, `paths` how far they are apart."""
    sizes, count = [*accumulate(levels, mul)], prod(levels)
    gpus = tuple(
        Gpu(i, UUID.format(i), model, 2**36, f"{i:08X}:01:00.0", i // to_a_numa_node, pcie_generation=4, pcie_width=16)
        for i in range(count)
    )
    apart = ((a, b, next(at for at, size in enumerate(sizes) if a // size == b // size)) for a, b in _pairs(count))
    return NodeTopology(gpus, tuple(Link(a, b, path=paths[at]) for a, b, at in apart))


def _pairs(count: int) -> combinations[tuple[int, int]]:
    return combinations(range(count), 2)


@st.composite
def nearly_regular(draw: st.DrawFn, most: int = 24) -> NodeTopology:
    """Draw groups of groups of up to `most` GPUs, of which a few pairs and GPUs are others."""
    levels = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4).filter(lambda levels: prod(levels) <= most))
    paths = [draw(st.sampled_from([*PciePath][1:])) for _ in levels]
    models = ("NVIDIA A40", "Tesla V100-SXM2-32GB", "NVIDIA GeForce RTX 4090")
    node = nested(levels, paths, draw(st.sampled_from(models)), levels[0])
    links, gpus = [*node.links], [*node.gpus]
    nvlinks, p2p = draw(st.sampled_from((0, 0, 1, 4))), draw(st.sampled_from((None, True, False)))
    links = [replace(link, p2p=p2p, nvlinks=nvlinks * (link.a // levels[0] == link.b // levels[0])) for link in links]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(links) - 1))
        links[place] = replace(links[place], path=draw(st.sampled_from([*PciePath][1:])))
    if draw(st.booleans()):
        gpus[-1] = replace(gpus[-1], pcie_generation=3)
    vendor = draw(st.sampled_from(("intel", "amd", "power9", None)))
    return replace(node, gpus=tuple(gpus), links=tuple(links), cpu_vendor=vendor)
