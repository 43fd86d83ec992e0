"""Reference machines by name, written from facts: for tests, documentation, simulations and a first try without hardware.

UUIDs are made up (but stable, and different on every pretend host), and NICs are those of the compute fabric only. PCIe paths
that no source shows are left unknown.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import combinations
from types import MappingProxyType
from typing import Final

from topology.node.architectures import architecture_of
from topology.node.links import PciePath
from topology.node.model import Gpu, Link, Nic, NodeTopology

PIX, PXB, PHB, NODE, SYS = PciePath.PIX, PciePath.PXB, PciePath.PHB, PciePath.NODE, PciePath.SYS
GIB, MIB = 2**30, 2**20
MEMORY_MIB: Final[Mapping[str, int]] = MappingProxyType(
    {
        "Tesla P100-SXM2-16GB": 16_384,
        "Tesla V100-SXM2-16GB": 16_384,
        "Tesla V100-SXM2-32GB": 32_768,
        "Tesla V100-SXM3-32GB": 32_768,
        "Tesla T4": 15_360,
        "NVIDIA A100-SXM4-40GB": 40_960,
        "NVIDIA A100 80GB PCIe": 81_920,
        "NVIDIA RTX A6000": 49_140,
        "NVIDIA GeForce RTX 3090": 24_576,
        "NVIDIA GeForce RTX 4090": 24_564,
        "NVIDIA L4": 23_034,
        "NVIDIA L40S": 46_068,
        "NVIDIA H100 80GB HBM3": 81_559,
        "NVIDIA H800": 81_559,
        "NVIDIA H100 NVL": 95_830,
        "NVIDIA H200": 143_771,
        "NVIDIA GH200 120GB": 97_871,
        "NVIDIA B200": 183_359,
        "NVIDIA GB200": 189_471,
    }
)
"""MiB in all, as NVML and `nvidia-smi` say, from outputs that people published.

H100 and H200 are from `tests/gpu/reports`. ECC is as the card comes: on, but for RTX cards. Old drivers (440) subtract
what they reserve: a V100 of 16 GB has 16,160 there.
"""
_NAMESPACE: Final = uuid.UUID("5a1d6f0c-3c5e-5f6b-9d0e-6770750a0001")


@dataclass(frozen=True, slots=True)
class Machine:
    """A named machine: what it is, where its wiring is documented, and how to build it."""

    name: str
    description: str
    source: str
    build: Callable[[], NodeTopology]


def machine(name: str, host: str = "") -> NodeTopology:
    """Return the machine called `name`; raises `KeyError`. Each pretend `host` gets GPU UUIDs of its own.

    >>> machine("dgx-1v").label(0, 3)
    'NV2'
    """
    return _on_host(name, host) if host else _built(name)


@lru_cache(512)
def _on_host(name: str, host: str) -> NodeTopology:
    node = _built(name)
    return replace(node, gpus=tuple(replace(gpu, uuid=_uuid(f"{host}/{name}", gpu.index)) for gpu in node.gpus))


@cache
def _built(name: str) -> NodeTopology:
    node = MACHINES[name].build()
    return replace(node, gpus=tuple(replace(gpu, uuid=_uuid(name, gpu.index)) for gpu in node.gpus))


def _uuid(seed: str, index: int) -> str:
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{seed}/{index}')}"


@dataclass(frozen=True, slots=True)
class _Tree:
    """A regular PCIe tree: neighbours in groups of these sizes are this near; all others are `beyond`."""

    groups: tuple[tuple[PciePath, int], ...] = ()
    beyond: PciePath | None = SYS

    def path(self, i: int, j: int) -> PciePath | None:
        return next((path for path, size in self.groups if i // size == j // size), self.beyond)


def _gpus(
    model: str,
    numa: Sequence[int | None],
    *,
    cores_per_numa_node: int = 0,
    threads_from: int = 0,
    switch_links: int = 0,
) -> tuple[Gpu, ...]:
    """One GPU for each NUMA node named; `threads_from` is the number of the first second thread, 0 for none."""
    known = architecture_of(model)
    assert known is not None, model
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            model=model,
            memory_bytes=MEMORY_MIB[model] * MIB,
            pci=f"00000000:{16 * (index + 1) % 256 + index // 15:02X}:00.0",
            numa_node=node,
            cpu_affinity=_cpus(node, cores_per_numa_node, threads_from),
            compute_capability=known.compute_capability,
            switch_links=switch_links,
            pcie_generation=known.pcie_generation,
            pcie_width=known.pcie_width,
        )
        for index, node in enumerate(numa)
    )


def _cpus(numa_node: int | None, cores: int, threads_from: int) -> str | None:
    if numa_node is None or not cores:
        return None
    first = numa_node * cores
    starts = (first, threads_from + first) if threads_from else (first,)
    return ",".join(f"{start}-{start + cores - 1}" for start in starts)


def _links(count: int, tree: _Tree, nvlinks: Mapping[tuple[int, int], int] | None = None) -> tuple[Link, ...]:
    wires = nvlinks or {}
    every = (Link(i, j, wires.get((i, j), 0), tree.path(i, j)) for i, j in combinations(range(count), 2))
    return tuple(link for link in every if not link.is_unknown)


def _nics(gpus: tuple[Gpu, ...], tree: _Tree, beside: Sequence[int], path: PciePath = PIX) -> tuple[Nic, ...]:
    """One NIC beside each GPU named, `path` away from it, and as far from the others as that GPU is."""

    def between(i: int, j: int) -> PciePath:
        return max(path, path if i == j else tree.path(i, j) or SYS)

    names = [f"NIC{number}" for number in range(len(beside))]
    return tuple(
        Nic(
            name=name,
            device=f"mlx5_{number}",
            pci=f"0000:{16 * (number + 1) % 256 + 8:02x}:00.0",
            numa_node=gpus[near].numa_node,
            paths=tuple((gpu.index, between(near, gpu.index)) for gpu in gpus),
            nic_paths=tuple(
                (other, between(near, beside[place])) for place, other in enumerate(names) if other != name
            ),
        )
        for number, (name, near) in enumerate(zip(names, beside, strict=True))
    )


def _mesh(groups: Iterable[Sequence[int]], count: int) -> dict[tuple[int, int], int]:
    """`count` NVLinks between any two of each group."""
    return {pair: count for group in groups for pair in combinations(group, 2)}


_QUADS = ((0, 1, 2, 3), (4, 5, 6, 7))
_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))
_TWO_SOCKETS = (0, 0, 0, 0, 1, 1, 1, 1)
_DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_SINGLE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
_CUBE_MESH_V100: Final = dict.fromkeys(_DOUBLE, 2) | dict.fromkeys(_SINGLE, 1)


def _dgx1(model: str, nvlinks: Mapping[tuple[int, int], int]) -> NodeTopology:
    tree = _Tree(((PIX, 2), (PHB, 4)))
    gpus = _gpus(model, _TWO_SOCKETS, cores_per_numa_node=20, threads_from=40)
    nics = _nics(gpus, tree, (0, 2, 4, 6))
    return NodeTopology(gpus, _links(8, tree, nvlinks), nics, cpu_vendor="intel", cpu_model="6/79")


def _dgx_1p() -> NodeTopology:
    across = {(gpu, gpu + 4): 1 for gpu in range(4)}
    return _dgx1("Tesla P100-SXM2-16GB", _mesh(_QUADS, 1) | across)


def _dgx_1v() -> NodeTopology:
    return _dgx1("Tesla V100-SXM2-32GB", _CUBE_MESH_V100)


def _dgx_1v_dead_link() -> NodeTopology:
    node = _dgx_1v()
    dead = (replace(link, nvlinks=0, reason="link down") if (link.a, link.b) == (0, 1) else link for link in node.links)
    return replace(node, links=tuple(dead))


def _v100_4() -> NodeTopology:
    quad = {pair: count for pair, count in _CUBE_MESH_V100.items() if max(pair) < 4}
    gpus = tuple(replace(gpu, cpu_affinity="0-31") for gpu in _gpus("Tesla V100-SXM2-16GB", [None] * 4))
    return NodeTopology(gpus, _links(4, _Tree(beyond=None), quad), cpu_vendor="intel", cpu_model="6/79")


def _dgx_2() -> NodeTopology:
    tree = _Tree(((PIX, 2), (PXB, 4), (NODE, 8)))
    gpus = _gpus("Tesla V100-SXM3-32GB", [0] * 8 + [1] * 8, cores_per_numa_node=24, threads_from=48, switch_links=6)
    nics = _nics(gpus, tree, range(0, 16, 2))
    return NodeTopology(gpus, _links(16, tree), nics, cpu_vendor="intel", cpu_model="6/85")


def _dgx_a100() -> NodeTopology:
    tree = _Tree(((PXB, 2),))
    numa = (3, 3, 1, 1, 7, 7, 5, 5)
    gpus = _gpus("NVIDIA A100-SXM4-40GB", numa, cores_per_numa_node=16, threads_from=128, switch_links=12)
    nics = _nics(gpus, tree, (0, 0, 2, 2, 4, 4, 6, 6), PXB)
    return NodeTopology(gpus, _links(8, tree), nics, cpu_vendor="amd", cpu_model="23/49")


def _a100_4_mesh() -> NodeTopology:
    tree = _Tree()
    gpus = _gpus("NVIDIA A100-SXM4-40GB", (3, 2, 1, 0), cores_per_numa_node=8, threads_from=32)
    nics = _nics(gpus, tree, (3, 1), PHB)
    return NodeTopology(gpus, _links(4, tree, _mesh([range(4)], 4)), nics, cpu_vendor="amd", cpu_model="25/1")


def _bridge_pairs(model: str, nvlinks: int, cores: int, vendor: str, cpu: str) -> NodeTopology:
    """Eight PCIe cards, four to a socket, bridged two by two."""
    gpus = _gpus(model, _TWO_SOCKETS, cores_per_numa_node=cores, threads_from=2 * cores)
    links = _links(8, _Tree(((NODE, 4),)), _mesh(_PAIRS, nvlinks))
    return NodeTopology(gpus, links, cpu_vendor=vendor, cpu_model=cpu)


def _a100_8_pairs() -> NodeTopology:
    return _bridge_pairs("NVIDIA A100 80GB PCIe", 12, 32, "intel", "6/106")


def _h100_nvl_8_pairs() -> NodeTopology:
    return _bridge_pairs("NVIDIA H100 NVL", 12, 64, "amd", "25/17")


def _a100_4_degraded_pair() -> NodeTopology:
    gpus = _gpus("NVIDIA A100 80GB PCIe", [0] * 4)
    return NodeTopology(gpus, _links(4, _Tree(((NODE, 4),)), {(0, 1): 12, (2, 3): 10}))


def _hgx(model: str, switch_links: int, cores: int, cpu: str) -> NodeTopology:
    """Eight GPUs on NVSwitches, four to a socket, a NIC beside each."""
    tree = _Tree(((NODE, 4),))
    numa, threads = _TWO_SOCKETS, 2 * cores
    gpus = _gpus(model, numa, cores_per_numa_node=cores, threads_from=threads, switch_links=switch_links)
    nics = _nics(gpus, tree, range(8))
    return NodeTopology(gpus, _links(8, tree), nics, cpu_vendor="intel", cpu_model=cpu)


def _hgx_h100() -> NodeTopology:
    return _hgx("NVIDIA H100 80GB HBM3", 18, 56, "6/143")


def _hgx_h200() -> NodeTopology:
    return _hgx("NVIDIA H200", 18, 56, "6/143")


def _hgx_h800() -> NodeTopology:
    return _hgx("NVIDIA H800", 8, 56, "6/143")


def _hgx_b200() -> NodeTopology:
    return _hgx("NVIDIA B200", 18, 56, "6/207")


def _hgx_b200_gpu2_off_fabric() -> NodeTopology:
    node = _hgx_b200()
    gpus = tuple(replace(gpu, switch_links=0) if gpu.index == 2 else gpu for gpu in node.gpus)
    links = (replace(link, reason="fabric not ready") if 2 in (link.a, link.b) else link for link in node.links)
    return replace(node, gpus=gpus, links=tuple(links))


def _h100_4_mesh() -> NodeTopology:
    tree = _Tree()
    gpus = _gpus("NVIDIA H100 80GB HBM3", (3, 1, 7, 5))
    nics = _nics(gpus, tree, range(4))
    return NodeTopology(gpus, _links(4, tree, _mesh([range(4)], 6)), nics)


def _gh200_4_mesh() -> NodeTopology:
    gpus = tuple(
        replace(gpu, numa_affinity=f"{gpu.index},{8 * gpu.index + 5}-{8 * gpu.index + 11}", memory_numa_node=memory)
        for gpu, memory in zip(
            _gpus("NVIDIA GH200 120GB", range(4), cores_per_numa_node=72), (4, 12, 20, 28), strict=True
        )
    )
    return NodeTopology(gpus, _links(4, _Tree(), _mesh([range(4)], 6)), cpu_vendor="arm")


def _gb200_tray() -> NodeTopology:
    gpus = _gpus("NVIDIA GB200", (0, 0, 1, 1), cores_per_numa_node=72, switch_links=18)
    spare = ("0,3-9,11-17", "0,3-9,11-17", "1,19-25,27-33", "1,19-25,27-33")
    coherent = (replace(gpu, numa_affinity=spare[gpu.index], memory_numa_node=8 * gpu.index + 2) for gpu in gpus)
    return NodeTopology(tuple(coherent), cpu_vendor="arm")


def _l40s_8() -> NodeTopology:
    tree = _Tree(((PIX, 2), (NODE, 4)))
    gpus = _gpus("NVIDIA L40S", _TWO_SOCKETS, cores_per_numa_node=32, threads_from=64)
    return NodeTopology(gpus, _links(8, tree), _nics(gpus, tree, (0, 4)), cpu_vendor="intel", cpu_model="6/143")


def _l40s_4() -> NodeTopology:
    gpus = _gpus("NVIDIA L40S", [0] * 4, cores_per_numa_node=48)
    return NodeTopology(gpus, _links(4, _Tree(((NODE, 4),))), cpu_vendor="amd", cpu_model="25/1")


def _l4_8() -> NodeTopology:
    gpus = _gpus("NVIDIA L4", _TWO_SOCKETS, cores_per_numa_node=24, threads_from=48)
    return NodeTopology(gpus, _links(8, _Tree(((PHB, 4),))))


def _t4_4() -> NodeTopology:
    gpus = _gpus("Tesla T4", [0] * 4, cores_per_numa_node=48)
    return NodeTopology(gpus, _links(4, _Tree(((PHB, 4),))), cpu_vendor="intel", cpu_model="6/85")


def _rtx_a6000_4_pairs() -> NodeTopology:
    gpus = _gpus("NVIDIA RTX A6000", (0, 0, 1, 1), cores_per_numa_node=24, threads_from=48)
    links = _links(4, _Tree(((NODE, 2),)), _mesh(_PAIRS[:2], 4))
    return NodeTopology(gpus, links, cpu_vendor="intel", cpu_model="6/106")


def _rtx_3090_2() -> NodeTopology:
    gpus = _gpus("NVIDIA GeForce RTX 3090", (0, 0), cores_per_numa_node=6)
    return NodeTopology(gpus, _links(2, _Tree(((PHB, 2),)), {(0, 1): 4}))


def _rtx_4090_8() -> NodeTopology:
    tree = _Tree(((PIX, 4), (NODE, 8)))
    gpus = _gpus("NVIDIA GeForce RTX 4090", [1] * 8, cores_per_numa_node=32, threads_from=64)
    return NodeTopology(gpus, _links(8, tree))


def _ac922(per_socket: int, nvlinks: int) -> NodeTopology:
    gpus = _gpus("Tesla V100-SXM2-16GB", [0] * per_socket + [8] * per_socket)
    sockets = (range(per_socket), range(per_socket, 2 * per_socket))
    tree = _Tree(((NODE, per_socket),))
    return NodeTopology(gpus, _links(2 * per_socket, tree, _mesh(sockets, nvlinks)), cpu_vendor="power9")


def _ac922_4() -> NodeTopology:
    return _ac922(2, 3)


def _ac922_6() -> NodeTopology:
    return _ac922(3, 2)


_ALL = (
    Machine("dgx-1p", "DGX-1, 8 P100, hybrid cube mesh of single links", "NVIDIA DGX-1 white paper", _dgx_1p),
    Machine(
        "dgx-1v", "DGX-1, 8 V100, hybrid cube mesh of single and double links", "NVIDIA DGX-1 white paper", _dgx_1v
    ),
    Machine(
        "dgx-1v-dead-link", "DGX-1V whose link between GPU 0 and 1 is down", "derived from dgx-1v", _dgx_1v_dead_link
    ),
    Machine("v100-sxm2-4", "half a cube mesh in a virtual machine", "AWS p3.8xlarge", _v100_4),
    Machine("dgx-2", "16 V100 on NVSwitch, two boards of 8", "NVIDIA DGX-2 user guide", _dgx_2),
    Machine("dgx-a100", "8 A100 on NVSwitch, four NUMA nodes with GPUs", "NVIDIA DGX A100 user guide", _dgx_a100),
    Machine("a100-sxm4-4", "4 A100, each joined to each by 4 links", "Argonne user guides, Polaris node", _a100_4_mesh),
    Machine("a100-pcie-8-pairs", "8 A100 cards bridged two by two", "NVIDIA A100 PCIe product brief", _a100_8_pairs),
    Machine(
        "a100-pcie-4-degraded-pair",
        "4 A100 cards in bridged pairs, two links of one bridge dead",
        "derived from the A100 PCIe product brief; such a matrix was reported from the field",
        _a100_4_degraded_pair,
    ),
    Machine("h100-sxm5-4", "4 H100, each joined to each by 6 links", "NVIDIA/nccl issue 1617", _h100_4_mesh),
    Machine("hgx-h100", "8 H100 on NVSwitch, a NIC beside each", "NVIDIA DGX H100 user guide", _hgx_h100),
    Machine("hgx-h200", "8 H200 on NVSwitch, a NIC beside each", "NVIDIA HGX H200 data sheet", _hgx_h200),
    Machine("hgx-h800", "8 H800: NVSwitch with 8 links to a GPU", "NVIDIA H800 data sheet", _hgx_h800),
    Machine(
        "h100-nvl-8-pairs", "8 H100 NVL cards bridged two by two", "NVIDIA H100 NVL product brief", _h100_nvl_8_pairs
    ),
    Machine("hgx-b200", "8 B200 on NVSwitch, a NIC beside each", "NVIDIA DGX B200 user guide", _hgx_b200),
    Machine(
        "hgx-b200-gpu2-off-fabric",
        "HGX B200 whose GPU 2 did not join the NVLink fabric",
        "vllm-project/vllm issue 16336",
        _hgx_b200_gpu2_off_fabric,
    ),
    Machine(
        "gh200-4", "4 Grace Hopper, each joined to each by 6 links", "NCSA DeltaAI user documentation", _gh200_4_mesh
    ),
    Machine("gb200-tray", "one compute tray of a GB200 rack, 4 GPUs", "NVIDIA GB200 NVL72 reference", _gb200_tray),
    Machine(
        "l40s-8",
        "8 L40S in pairs behind PCIe switches, two sockets",
        "NVIDIA L40S product brief; common 8-card servers",
        _l40s_8,
    ),
    Machine("l40s-4", "4 L40S on one socket, each on its own host bridge", "AWS g6e.12xlarge", _l40s_4),
    Machine("l4-8", "8 L4, four to a host bridge", "AWS g6.48xlarge", _l4_8),
    Machine("t4-4", "4 T4 in a virtual machine, all behind one host bridge", "AWS g4dn.12xlarge", _t4_4),
    Machine("rtx-a6000-4-pairs", "4 RTX A6000 bridged two by two", "NVIDIA RTX A6000 data sheet", _rtx_a6000_4_pairs),
    Machine("rtx-3090-2", "a workstation with two bridged RTX 3090", "NVIDIA RTX 3090 NVLink bridge", _rtx_3090_2),
    Machine(
        "rtx-4090-8", "8 RTX 4090 behind two PCIe switches on one socket", "10-slot PCIe-switch server", _rtx_4090_8
    ),
    Machine("ac922-4", "POWER9 with 4 V100; 3 more links of each GPU go to its CPU", "IBM AC922 redbook", _ac922_4),
    Machine(
        "ac922-6", "POWER9 with 6 V100; 2 more links of each GPU go to its CPU", "ORNL Summit user guide", _ac922_6
    ),
)

MACHINES: Final[Mapping[str, Machine]] = MappingProxyType({found.name: found for found in _ALL})
"""All machines, oldest generation first within a family."""
