"""The immutable topology of one node; every matrix is derived here, once, and nowhere else.

A position is a GPU's place in `NodeTopology.gpus` (0..n-1, dense). An index is the number that NVML gives it, which has
holes when a GPU is lost. Links name indexes, matrices and free masks use positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from topology.errors import PayloadError
from topology.node.alike import Block, blocks_of
from topology.node.links import PciePath
from topology.node.slices import Slice, check_slices

NOT_SHOWN: Final = "not shown in the matrix"
"""The reason of a link that a partial matrix left out."""
UNKNOWN_CELL: Final = "?"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML describes it; `None` is "unknown", never "none"."""

    index: int
    uuid: str
    model: str
    memory_bytes: int | None = None
    pci: str | None = None
    """Bus id, `00000000:07:00.0`."""
    numa_node: int | None = None
    """The host's NUMA node; `None` where neither NVML nor the kernel says."""
    cpu_affinity: str | None = None
    """CPU list, `0-19,40-59`; cut by cgroups, so it is shown and never decided on."""
    compute_capability: tuple[int, int] | None = None
    switch_links: int = 0
    """Active NVLinks whose far end is an NVSwitch on a ready fabric."""
    pcie_generation: int | None = None
    """Maximum, not current: an idle link slows down."""
    pcie_width: int | None = None
    mig_enabled: bool = False
    ecc_enabled: bool | None = None
    memory_numa_node: int | None = None
    """The NUMA node that the GPU's own memory is (coherent platforms only): `GPU NUMA ID` of the matrix."""
    numa_affinity: str | None = None
    """All NUMA nodes near the GPU, `0,3-9`, where there are more than `numa_node`: Grace adds one for each MIG slice."""


@dataclass(frozen=True, slots=True)
class Link:
    """How the GPUs with indexes `a` < `b` are joined, beside any NVSwitch they share."""

    a: int
    b: int
    nvlinks: int = 0
    """Active NVLinks that go straight from one to the other."""
    path: PciePath | None = None
    """`None`: not known (an `NV#` cell hides it)."""
    p2p: bool | None = None
    """Whether NVML allows peer reads and writes; `None`: not known."""
    reason: str | None = None
    """Why this pair is worth less than its wires, e.g. `fabric not ready`."""

    @property
    def is_unknown(self) -> bool:
        """Whether it says nothing of the pair; a topology leaves such links out."""
        return not self.nvlinks and self.path is None and self.p2p is None and self.reason is None


@dataclass(frozen=True, slots=True)
class Nic:
    """One network device, and its PCIe path to each GPU that is known."""

    name: str
    device: str | None = None
    """The kernel's name (`mlx5_0`) when `name` is a matrix label (`NIC0`)."""
    pci: str | None = None
    numa_node: int | None = None
    paths: tuple[tuple[int, PciePath], ...] = ()
    """(GPU index, path), by index."""
    nic_paths: tuple[tuple[str, PciePath], ...] = ()
    """(other NIC's name, path) where a matrix showed it; both NICs of a pair say the same."""


@dataclass(frozen=True, slots=True)
class NvlinkDomain:
    """The multi-node NVLink partition this node's GPUs belong to (NVML's fabric info)."""

    cluster_uuid: str
    clique_id: int


@dataclass(frozen=True)
class NodeTopology:
    """All GPUs of a node and how they are wired.

    Raises `PayloadError` when parts contradict each other, or there are more GPUs or NICs than any node has.
    Contradictions are unordered or repeated indexes, repeated UUIDs, links to missing GPUs, pairs named twice, NICs that
    disagree, and slices of no GPU.
    """

    gpus: tuple[Gpu, ...]
    links: tuple[Link, ...] = ()
    nics: tuple[Nic, ...] = ()
    domain: NvlinkDomain | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    cpu_vendor: str | None = None
    """`intel`, `amd`, `power9`, `arm`; decides the speed between sockets."""
    cpu_model: str | None = None
    """Free text or `family/model`, as the source says it."""
    slices: tuple[Slice, ...] = ()
    """MIG devices; their positions follow those of the GPUs."""

    def __post_init__(self) -> None:
        _check(self)

    def __len__(self) -> int:
        return len(self.gpus)

    @cached_property
    def positions(self) -> dict[int, int]:
        """Index → position."""
        return {gpu.index: position for position, gpu in enumerate(self.gpus)}

    @cached_property
    def indexes(self) -> tuple[int, ...]:
        """Index by position; of a slice that of its GPU."""
        return (*(gpu.index for gpu in self.gpus), *(each.gpu for each in self.slices))

    @cached_property
    def by_uuid(self) -> dict[str, int]:
        """UUID → position."""
        return {gpu.uuid: position for position, gpu in enumerate(self.gpus)}

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """UUIDs by position: what pods can get, GPUs first, then slices."""
        return (*(gpu.uuid for gpu in self.gpus), *(each.uuid for each in self.slices))

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Link]:
        """Positions (i, j), i < j → link; a pair that no source named is a link of which nothing is known."""
        found = {(self.positions[link.a], self.positions[link.b]): link for link in self.links}
        return {
            (i, j): found.get((i, j)) or Link(self.gpus[i].index, self.gpus[j].index)
            for i in range(len(self.gpus))
            for j in range(i + 1, len(self.gpus))
        }

    def nvlinks(self, i: int, j: int) -> int:
        """NVLinks between positions `i` and `j`: straight ones, plus what both share through the NVSwitch.

        A pair to which NVML denies peer access has none: NCCL refuses such links.
        """
        link = self.pairs[min(i, j), max(i, j)]
        if link.p2p is False:
            return 0
        return link.nvlinks + min(self.gpus[i].switch_links, self.gpus[j].switch_links)

    def path(self, i: int, j: int) -> PciePath:
        """Return the PCIe path of positions `i` and `j`; when no source says, what their NUMA nodes allow at worst."""
        link = self.pairs[(i, j) if i < j else (j, i)]
        if link.path is not None:
            return link.path
        numa_i, numa_j = self.gpus[i].numa_node, self.gpus[j].numa_node
        return PciePath.NODE if numa_i is not None and numa_i == numa_j else PciePath.SYS

    def label(self, i: int, j: int) -> str:
        """Return the `nvidia-smi topo -m` cell of positions `i` and `j`; `?` where the source left it out.

        >>> NodeTopology((Gpu(0, "a", "m"), Gpu(1, "b", "m")), (Link(0, 1, nvlinks=2),)).label(1, 0)
        'NV2'
        """
        if i == j:
            return "X"
        if self.pairs[min(i, j), max(i, j)].reason == NOT_SHOWN:
            return UNKNOWN_CELL
        count = self.nvlinks(i, j)
        return f"NV{count}" if count else self.path(i, j).label

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """What of the machine is alike as far as wires go: what can be exchanged, position by position or together."""
        # Of POWER9 processors it also counts how many GPUs share their NVLinks, so that none stands for several.
        counted = self.cpu_vendor == "power9"
        kinds = [
            (
                gpu.model,
                gpu.compute_capability,
                gpu.switch_links,
                gpu.pcie_generation,
                gpu.pcie_width,
                counted and gpu.index,
            )
            for gpu in self.gpus
        ]
        numbers: dict[tuple[int, PciePath, bool | None], int] = {}
        ties = [[-1] * len(self.gpus) for _ in self.gpus]
        for (i, j), link in self.pairs.items():
            path = link.path if link.path is not None else self.path(i, j)
            facts = link.nvlinks, path, link.p2p
            ties[i][j] = ties[j][i] = numbers.setdefault(facts, len(numbers))
        return blocks_of(kinds, ties)

    @cached_property
    def matrix(self) -> tuple[tuple[str, ...], ...]:
        """All cells, GPUs only."""
        span = range(len(self.gpus))
        return tuple(tuple(self.label(i, j) for j in span) for i in span)


MAX_NVLINKS = 36
"""Of one GPU, by NVML (`NVML_NVLINK_MAX_LINKS`)."""
MAX_GPUS = 72
"""Of one NVLink domain, the largest there is (GB200 NVL72); a claim of more is a forged or broken payload."""
MAX_NICS = 64


def _check(node: NodeTopology) -> None:
    if len(node.gpus) > MAX_GPUS:
        raise PayloadError("$.gpus", f"{len(node.gpus)} GPUs, at most {MAX_GPUS} are believed")
    _check_gpus(node.gpus)
    known = {gpu.index for gpu in node.gpus}
    _check_links(node.links, known)
    nvlinks = {gpu.index: gpu.switch_links for gpu in node.gpus}
    for link in node.links:
        if link.nvlinks:
            nvlinks[link.a] += link.nvlinks
            nvlinks[link.b] += link.nvlinks
    for position, gpu in enumerate(node.gpus):
        if nvlinks[gpu.index] > MAX_NVLINKS:
            raise PayloadError(f"$.gpus[{position}]", f"more than the {MAX_NVLINKS} NVLinks that a GPU can have")
    _check_nics(node.nics, known)
    if node.slices:
        check_slices(node.slices, known, {gpu.uuid for gpu in node.gpus})


def _check_gpus(gpus: tuple[Gpu, ...]) -> None:
    uuids: set[str] = set()
    for position, gpu in enumerate(gpus):
        if position and gpu.index <= gpus[position - 1].index:
            raise PayloadError(f"$.gpus[{position}].index", "indexes must rise")
        if gpu.uuid in uuids:
            raise PayloadError(f"$.gpus[{position}].uuid", "the same UUID twice")
        uuids.add(gpu.uuid)


def _check_links(links: tuple[Link, ...], known: set[int]) -> None:
    pairs: set[tuple[int, int]] = set()
    for position, link in enumerate(links):
        pair = link.a, link.b
        if link.a >= link.b:
            raise PayloadError(f"$.links[{position}]", "a link names its lower index first and joins two GPUs")
        if link.a not in known or link.b not in known:
            raise PayloadError(f"$.links[{position}]", "a link to a GPU that is not listed")
        if pair in pairs:
            raise PayloadError(f"$.links[{position}]", "the same pair twice")
        if link.nvlinks < 0:
            raise PayloadError(f"$.links[{position}].nvlinks", "a negative count")
        pairs.add(pair)


def _check_nics(nics: tuple[Nic, ...], known: set[int]) -> None:
    if len(nics) > MAX_NICS:
        raise PayloadError("$.nics", f"{len(nics)} NICs, at most {MAX_NICS} are believed")
    names = {nic.name for nic in nics}
    if len(names) != len(nics):
        raise PayloadError("$.nics", "the same name twice")
    said: dict[tuple[str, str], PciePath] = {}
    for position, nic in enumerate(nics):
        if any(index not in known for index, _ in nic.paths):
            raise PayloadError(f"$.nics[{position}].paths", "a path to a GPU that is not listed")
        for other, path in nic.nic_paths:
            if other not in names or other == nic.name:
                raise PayloadError(f"$.nics[{position}].nic_paths", "a path to a NIC that is not listed")
            if said.setdefault((min(nic.name, other), max(nic.name, other)), path) != path:
                raise PayloadError(f"$.nics[{position}].nic_paths", "two NICs disagree about the path between them")
