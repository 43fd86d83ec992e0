"""Arbitrary valid topologies: odd indexes, lost GPUs, one-way meshes, half-known paths, NICs, anything the model allows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, TypeVar

from hypothesis import strategies as st

from topology.node.links import PciePath
from topology.node.model import Gpu, Link, Nic, NodeTopology, NvlinkDomain
from topology.node.slices import Slice

MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB", "NVIDIA L4", "a GPU of next year")
CPU_LISTS = ("0-23,48-71", "24-47,72-95", "1-1", "0", "6,14,22,30")

T = TypeVar("T")


def maybe(*values: T) -> tuple[T | None, ...]:
    """Return the values, and None as often as all of them."""
    return (*[None] * len(values), *values)


MAYBE_PATHS = maybe(*PciePath)

# A strategy is made once, here: making one takes longer than drawing from it.
numa_nodes = st.none() | st.integers(0, 7)
memory_numa_nodes = st.none() | st.integers(0, 255)
memory_bytes = st.none() | st.integers(1, 2**40)
cpu_lists = st.none() | st.sampled_from(CPU_LISTS)
texts = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_categories=("C", "Z")), min_size=1, max_size=24
)
models = st.none() | st.sampled_from(MODELS)
domains = st.none() | st.builds(NvlinkDomain, st.just("7c6a5b1e-0000-4000-8000-000000000001"), st.integers(0, 99))
driver_versions = st.none() | st.just("550.90.07")
cuda_versions = st.none() | st.just("12.4")
cpu_vendors = st.none() | st.sampled_from(("intel", "amd", "arm", "power9"))
cpu_models = st.none() | texts
REASONS = (st.none(), st.just("fabric not ready"), texts)
matrix_affinities = st.none() | st.sampled_from(("0,3-9", "1,19-25,27-33", "7-8"))
counts_of_nics = st.integers(0, 4)


def several(draw: st.DrawFn, values: Sequence[T], count: int) -> list[T]:
    """Draw `count` of at most 256 values as one string of bytes, which takes as long as a single draw."""
    return [values[byte % len(values)] for byte in draw(st.binary(min_size=count, max_size=count))]


def gpus(draw: st.DrawFn, indexes: Sequence[int]) -> tuple[Gpu, ...]:
    """Draw the GPUs of a node, of one model or of any; a UUID follows from the index."""
    model = draw(models)
    columns: dict[str, Sequence[Any]] = {
        "index": indexes,
        "uuid": [f"GPU-00000000-0000-4000-8000-{index:012x}" for index in indexes],
        "model": several(draw, (model,) if model else MODELS, len(indexes)),
        "memory_bytes": [draw(memory_bytes) for _ in indexes],
        "pci": [
            form and form.format(index)
            for form, index in zip(several(draw, (None, "0000{:04X}:00:00.0"), len(indexes)), indexes, strict=True)
        ],
        "numa_node": several(draw, maybe(*range(8)), len(indexes)),
        "numa_affinity": several(draw, maybe("0,3-9", "1,19-25,27-33"), len(indexes)),
        "cpu_affinity": several(draw, maybe(*CPU_LISTS), len(indexes)),
        "compute_capability": several(draw, maybe(*product(range(3, 13), range(10))), len(indexes)),
        "switch_links": several(draw, (0, 0, 6, 12, 18), len(indexes)),
        "pcie_generation": several(draw, maybe(*range(1, 7)), len(indexes)),
        "pcie_width": several(draw, maybe(1, 8, 16), len(indexes)),
        "mig_enabled": several(draw, (False, True), len(indexes)),
        "ecc_enabled": several(draw, maybe(False, True), len(indexes)),
        "memory_numa_node": [draw(memory_numa_nodes) for _ in indexes],
    }
    return tuple(Gpu(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))


def links(draw: st.DrawFn, indexes: Sequence[int]) -> tuple[Link, ...]:
    """Draw the links of all pairs, from nothing known to all known; a link that says nothing is left out."""
    pairs = list(combinations(indexes, 2))
    drawn = zip(
        pairs,
        several(draw, (0, 0, 0, 1, 2), len(pairs)),
        several(draw, MAYBE_PATHS, len(pairs)),
        several(draw, maybe(False, True), len(pairs)),
        several(draw, REASONS, len(pairs)),
        strict=True,
    )
    every = (
        Link(a, b, nvlinks=nvlinks, path=path, p2p=p2p, reason=draw(reason))
        for (a, b), nvlinks, path, p2p, reason in drawn
    )
    return tuple(link for link in every if not link.is_unknown)


def nics(draw: st.DrawFn, indexes: Sequence[int]) -> tuple[Nic, ...]:
    """Draw up to four NICs that agree about the paths between them."""
    names = [f"NIC{number}" for number in range(draw(counts_of_nics))]
    pairs = list(combinations(names, 2))
    between = dict(zip(pairs, several(draw, MAYBE_PATHS, len(pairs)), strict=True))
    drawn = []
    for name in names:
        has_device, has_address = several(draw, (False, True), 2)
        near = zip(indexes, several(draw, MAYBE_PATHS, len(indexes)), strict=True)
        others = ((other, between[min(name, other), max(name, other)]) for other in names if other != name)
        drawn.append(
            Nic(
                name,
                device=f"mlx5_{name[3:]}" if has_device else None,
                pci=f"0000:{name[3:]}c:00.0" if has_address else None,
                numa_node=draw(numa_nodes),
                paths=tuple((index, path) for index, path in near if path is not None),
                nic_paths=tuple((other, path) for other, path in others if path is not None),
            )
        )
    return tuple(drawn)


PROFILES = ("1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb", "1c.3g.40gb", "7g.80gb")


def slices(draw: st.DrawFn, indexes: Sequence[int]) -> tuple[Slice, ...]:
    """Draw up to seven MIG devices of some of the GPUs; places may overlap, which is the driver's business."""
    counts = several(draw, (*[0] * 7, *range(1, 8)), len(indexes))
    places = [(index, number) for index, count in zip(indexes, counts, strict=True) for number in range(count)]
    drawn = zip(
        places,
        several(draw, PROFILES, len(places)),
        several(draw, (10**10, 2 * 10**10), len(places)),
        several(draw, range(8), len(places)),
        several(draw, range(1, 9), len(places)),
        strict=True,
    )
    return tuple(
        Slice(index, f"MIG-{index}-{number}", profile, memory, start, size, number, number % 2)
        for (index, number), profile, memory, start, size in drawn
    )


@st.composite
def topologies(draw: st.DrawFn, min_gpus: int = 0, max_gpus: int = 8) -> NodeTopology:
    """Any valid node of `min_gpus` to `max_gpus` GPUs, in canonical form: no link that carries nothing."""
    count = draw(st.integers(min_gpus, max_gpus))
    indexes = tuple(sorted(draw(st.sets(st.integers(0, 31), min_size=count, max_size=count))))
    return NodeTopology(
        gpus=gpus(draw, indexes),
        links=links(draw, indexes),
        nics=nics(draw, indexes),
        domain=draw(domains),
        driver_version=draw(driver_versions),
        cuda_version=draw(cuda_versions),
        cpu_vendor=draw(cpu_vendors),
        cpu_model=draw(cpu_models),
        slices=slices(draw, indexes),
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
    affinity = draw(matrix_affinities)
    return Gpu(
        index,
        uuid=f"GPU-{index}",
        model="unknown",
        numa_node=int(affinity[0]) if affinity else draw(numa_nodes),
        numa_affinity=affinity,
        cpu_affinity=draw(cpu_lists),
        switch_links=switch_links,
        memory_numa_node=draw(memory_numa_nodes),
    )
