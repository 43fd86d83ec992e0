"""Arbitrary valid topologies: odd indexes, lost GPUs, one-way meshes, half-known paths, NICs, anything the model allows."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from topology.node.links import PciePath
from topology.node.model import Gpu, Link, Nic, NodeTopology, NvlinkDomain
from topology.node.slices import Slice

MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB", "NVIDIA L4", "a GPU of next year")

paths = st.sampled_from(PciePath)
numa_nodes = st.none() | st.integers(0, 7)
cpu_lists = st.none() | st.sampled_from(("0-23,48-71", "24-47,72-95", "1-1", "0", "6,14,22,30"))
texts = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_categories=("C", "Z")), min_size=1, max_size=24
)


@st.composite
def gpus(draw: st.DrawFn, index: int, model: str | None = None) -> Gpu:
    """One GPU; its UUID follows from its index."""
    return Gpu(
        index=index,
        uuid=f"GPU-00000000-0000-4000-8000-{index:012x}",
        model=model or draw(st.sampled_from(MODELS)),
        memory_bytes=draw(st.none() | st.integers(1, 2**40)),
        pci=draw(st.none() | st.just(f"0000{index:04X}:00:00.0")),
        numa_node=draw(numa_nodes),
        numa_affinity=draw(st.none() | st.sampled_from(("0,3-9", "1,19-25,27-33"))),
        cpu_affinity=draw(cpu_lists),
        compute_capability=draw(st.none() | st.tuples(st.integers(3, 12), st.integers(0, 9))),
        switch_links=draw(st.sampled_from((0, 0, 6, 12, 18))),
        pcie_generation=draw(st.none() | st.integers(1, 6)),
        pcie_width=draw(st.none() | st.sampled_from((1, 8, 16))),
        mig_enabled=draw(st.booleans()),
        ecc_enabled=draw(st.none() | st.booleans()),
        memory_numa_node=draw(st.none() | st.integers(0, 255)),
    )


@st.composite
def links(draw: st.DrawFn, a: int, b: int) -> Link:
    """One pair, from nothing known to all known."""
    return Link(
        a,
        b,
        nvlinks=draw(st.sampled_from((0, 0, 0, 1, 2))),
        path=draw(st.none() | paths),
        p2p=draw(st.none() | st.booleans()),
        reason=draw(st.none() | st.just("fabric not ready") | texts),
    )


@st.composite
def nics(draw: st.DrawFn, indexes: tuple[int, ...]) -> tuple[Nic, ...]:
    """Up to four NICs that agree about the paths between them."""
    names = [f"NIC{number}" for number in range(draw(st.integers(0, 4)))]
    between = {pair: draw(st.none() | paths) for pair in combinations(names, 2)}
    found = []
    for name in names:
        near = ((index, draw(st.none() | paths)) for index in indexes)
        others = ((other, between[min(name, other), max(name, other)]) for other in names if other != name)
        found.append(
            Nic(
                name,
                device=draw(st.none() | st.just(f"mlx5_{name[3:]}")),
                pci=draw(st.none() | st.just(f"0000:{name[3:]}c:00.0")),
                numa_node=draw(numa_nodes),
                paths=tuple((index, path) for index, path in near if path is not None),
                nic_paths=tuple((other, path) for other, path in others if path is not None),
            )
        )
    return tuple(found)


PROFILES = ("1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb", "1c.3g.40gb", "7g.80gb")


@st.composite
def slices(draw: st.DrawFn, indexes: tuple[int, ...]) -> tuple[Slice, ...]:
    """Up to seven MIG devices of some of the GPUs; places may overlap, which is the driver's business."""
    found = []
    for index in draw(st.sets(st.sampled_from(indexes))) if indexes else ():
        for number in range(draw(st.integers(0, 7))):
            profile, start = draw(st.sampled_from(PROFILES)), draw(st.integers(0, 7))
            memory_bytes, size = draw(st.sampled_from((10**10, 2 * 10**10))), draw(st.integers(1, 8))
            found.append(Slice(index, f"MIG-{index}-{number}", profile, memory_bytes, start, size, number, number % 2))
    return tuple(sorted(found, key=lambda each: (each.gpu, each.gpu_instance)))


@st.composite
def topologies(draw: st.DrawFn, min_gpus: int = 0, max_gpus: int = 8) -> NodeTopology:
    """Any valid node of `min_gpus` to `max_gpus` GPUs, in canonical form: no link that carries nothing."""
    count = draw(st.integers(min_gpus, max_gpus))
    indexes = tuple(sorted(draw(st.sets(st.integers(0, 31), min_size=count, max_size=count))))
    every = (draw(links(a, b)) for a, b in combinations(indexes, 2))
    domains = st.builds(NvlinkDomain, st.just("7c6a5b1e-0000-4000-8000-000000000001"), st.integers(0, 99))
    model = draw(st.none() | st.sampled_from(MODELS))
    return NodeTopology(
        gpus=tuple(draw(gpus(index, model)) for index in indexes),
        links=tuple(link for link in every if not link.is_unknown),
        nics=draw(nics(indexes)),
        domain=draw(st.none() | domains),
        driver_version=draw(st.none() | st.just("550.90.07")),
        cuda_version=draw(st.none() | st.just("12.4")),
        cpu_vendor=draw(st.none() | st.sampled_from(("intel", "amd", "arm", "power9"))),
        cpu_model=draw(st.none() | texts),
        slices=draw(slices(indexes)),
    )


@st.composite
def matrix_topologies(draw: st.DrawFn) -> NodeTopology:
    """Any node of which a matrix carries everything: one cell for each pair, no UUIDs, models or addresses."""
    count = draw(st.integers(1, 6))
    indexes = tuple(sorted(draw(st.sets(st.integers(0, 31), min_size=count, max_size=count))))
    shown = st.sampled_from([path for path in PciePath if path is not PciePath.INTERNAL])
    switch_links = draw(st.sampled_from((0, 10, 12, 18))) if count > 2 else 0
    every = []
    for a, b in combinations(indexes, 2):
        # At most three links a pair: five pairs stay below the eighteen that a GPU can have.
        nvlinks = 0 if switch_links else draw(st.integers(0, 3))
        every.append(Link(a, b, nvlinks=nvlinks, path=None if nvlinks or switch_links else draw(shown)))
    names = [f"NIC{number}" for number in range(draw(st.integers(0, 3)))]
    between = {pair: draw(shown) for pair in combinations(names, 2)}
    return NodeTopology(
        gpus=tuple(_matrix_gpu(draw, index, switch_links) for index in indexes),
        links=tuple(link for link in every if not link.is_unknown),
        nics=tuple(
            Nic(
                name,
                device=draw(st.none() | st.just(f"mlx5_{name[3:]}")),
                paths=tuple((index, draw(shown)) for index in indexes),
                nic_paths=tuple((o, between[min(name, o), max(name, o)]) for o in names if o != name),
            )
            for name in names
        ),
    )


def _matrix_gpu(draw: st.DrawFn, index: int, switch_links: int) -> Gpu:
    affinity = draw(st.none() | st.sampled_from(("0,3-9", "1,19-25,27-33", "7-8")))
    return Gpu(
        index,
        uuid=f"GPU-{index}",
        model="unknown",
        numa_node=int(affinity[0]) if affinity else draw(numa_nodes),
        numa_affinity=affinity,
        cpu_affinity=draw(cpu_lists),
        switch_links=switch_links,
        memory_numa_node=draw(st.none() | st.integers(0, 255)),
    )
