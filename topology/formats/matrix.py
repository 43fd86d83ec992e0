"""`nvidia-smi topo -m` text to topology and back.

A matrix does not carry UUIDs (GPU 3 is called `GPU-3`) or the PCIe path behind an `NV#` cell. Nor does it say whether
NVLinks go straight to a peer or to an NVSwitch (inferred, see `_switch_links`). Every row that is there is believed, and
cells that are missing are taken from the other half. A pair that neither half shows is a link with reason `NOT_SHOWN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final

from topology.errors import SourceError
from topology.formats.matrix_text import GPU, AffinityColumns, Table, Warn, read_table
from topology.node.architectures import DEFAULT_MAX_NVLINKS, Architecture, architecture_of
from topology.node.links import PciePath
from topology.node.model import MAX_NVLINKS, NOT_SHOWN, UNKNOWN_CELL, Gpu, Link, Nic, NodeTopology

OTHER_PARTITION: Final = "in another NVSwitch partition"
UNKNOWN_MODEL: Final = "unknown"

Pair = tuple[int, int]


def parse_matrix(text: str, gpu_model: str | None = None, warn: Warn = lambda _line, _what: None) -> NodeTopology:
    """Return the topology that the first `topo -m` (or `-mp`) matrix in `text` shows; raises `SourceError`.

    `gpu_model` is NVML's product name; it tells how many NVLinks a GPU has. `warn` hears of what is left out.
    """
    table = read_table(text, warn)
    labels = {int(found[1]): name for name in table.devices if (found := GPU.fullmatch(name))}
    nvlinks: dict[Pair, int] = {}
    paths: dict[Pair, PciePath] = {}
    for pair in combinations(sorted(labels), 2):
        cell = table.cell(labels[pair[0]], labels[pair[1]])
        if cell and cell.startswith("NV"):
            nvlinks[pair] = int(cell.removeprefix("NV"))
            if nvlinks[pair] > MAX_NVLINKS:
                raise SourceError(0, 0, f"{cell} between GPU{pair[0]} and GPU{pair[1]}: no GPU has that many NVLinks")
        elif cell:
            paths[pair] = PciePath[cell]
    known = architecture_of(gpu_model) if gpu_model else None
    switched = _switch_links(nvlinks, known.max_nvlinks if known and known.max_nvlinks else DEFAULT_MAX_NVLINKS)
    return NodeTopology(
        gpus=tuple(
            _gpu(index, gpu_model, known, switched.get(index, 0), table.rows.get(labels[index], AffinityColumns()))
            for index in sorted(labels)
        ),
        links=tuple(_links(sorted(labels), nvlinks, paths, switched)),
        nics=tuple(_nics(table, labels)),
    )


def print_matrix(node: NodeTopology, legend: bool = True) -> str:
    """Return the text that `nvidia-smi topo -m` would print, tabs and all.

    A cell that a partial matrix left out is `?`. Any other path that is not known is the worst that the NUMA nodes allow, as
    `NodeTopology.path` has it. `parse_matrix` reads back whatever a matrix can carry.
    """
    names = [f"GPU{gpu.index}" for gpu in node.gpus]
    lines = ["\t".join(["", *names, *(nic.name for nic in node.nics), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for name, gpu, cells in zip(names, node.gpus, node.matrix, strict=True):
        nics = (_nic_to_gpu(nic, gpu) for nic in node.nics)
        numa = gpu.numa_affinity or ("N/A" if gpu.numa_node is None else gpu.numa_node)
        memory = "N/A" if gpu.memory_numa_node is None else gpu.memory_numa_node
        # The doubled tab is nvidia-smi's.
        lines.append(
            "\t".join([name, *map(_padded, (*cells, *nics)), gpu.cpu_affinity or "", f"{numa}\t", f"{memory}"])
        )
    for nic in node.nics:
        cells = (*(_nic_to_gpu(nic, gpu) for gpu in node.gpus), *(_nic_to_nic(nic, other) for other in node.nics))
        lines.append("\t".join([nic.name, *map(_padded, cells)]))
    if legend:
        lines += ["", *_LEGEND]
        if devices := [f"  {nic.name}: {nic.device}" for nic in node.nics if nic.device]:
            lines += ["", "NIC Legend:", "", *devices]
    return "\n".join(lines) + "\n"


def describe_gaps(node: NodeTopology) -> str | None:
    """Say how much of its matrix is not known; `None` when all of it is."""
    gpus, nics = len(node.gpus), len(node.nics)
    pairs = sum(row.count(UNKNOWN_CELL) for row in node.matrix) // 2
    to_gpus = sum(_nic_to_gpu(nic, gpu) == UNKNOWN_CELL for nic in node.nics for gpu in node.gpus)
    to_nics = sum(_nic_to_nic(nic, other) == UNKNOWN_CELL for nic, other in combinations(node.nics, 2))
    gaps = (
        (pairs, gpus * (gpus - 1) // 2, "pairs of GPUs"),
        (to_gpus + to_nics, nics * gpus + nics * (nics - 1) // 2, "paths of NICs"),
    )
    return " and ".join(f"{missing} of {of} {what}" for missing, of, what in gaps if missing) or None


_LEGEND = (
    "Legend:",
    "",
    "  X    = Self",
    "  SYS  = Over PCIe and the interconnect between NUMA nodes (QPI, UPI, Infinity Fabric)",
    "  NODE = Over PCIe and the interconnect between host bridges of one NUMA node",
    "  PHB  = Over PCIe and one host bridge, usually the CPU's",
    "  PXB  = Over several PCIe switches, no host bridge",
    "  PIX  = Over at most one PCIe switch",
    "  NV#  = Over # NVLinks",
)


def _switch_links(nvlinks: Mapping[Pair, int], max_nvlinks: int) -> dict[int, int]:
    """Infer how many NVLinks each GPU has to an NVSwitch: GPU index → links, without those that have none.

    A GPU cannot have more links than its generation has. Where the cells of one sum up to more, they count the same links
    again and again. These links go to a switch, and so do those of all GPUs that it reaches. Through a switch a pair
    reads the smaller of both GPUs' links, so each has as many as its largest cell. Where the cells contradict that, they
    stay direct links as long as any GPU could have so many. Otherwise each has as many as its smallest cell, which is too
    little rather than too much. A slice of two GPUs, or one whose sum stays in bounds, looks like a mesh and is taken for
    one.
    """
    switched: dict[int, int] = {}
    for island in _islands(nvlinks):
        cells = {pair: count for pair, count in nvlinks.items() if pair[0] in island}
        per_gpu = {gpu: [count for pair, count in cells.items() if gpu in pair] for gpu in island}
        links = {gpu: max(counts) for gpu, counts in per_gpu.items()}
        most = max(sum(counts) for counts in per_gpu.values())
        if len(island) > 2 and most > max_nvlinks:
            if all(count == min(links[a], links[b]) for (a, b), count in cells.items()):
                switched |= links
            elif most > MAX_NVLINKS:
                switched |= {gpu: min(counts) for gpu, counts in per_gpu.items()}
    return switched


def _islands(pairs: Mapping[Pair, int]) -> list[set[int]]:
    """Return the GPUs that NVLinks join, island by island."""
    islands: list[set[int]] = []
    for pair in pairs:
        touched = [island for island in islands if not island.isdisjoint(pair)]
        islands = [island for island in islands if island.isdisjoint(pair)] + [set(pair).union(*touched)]
    return islands


def _links(
    indexes: list[int], nvlinks: Mapping[Pair, int], paths: Mapping[Pair, PciePath], switched: Mapping[int, int]
) -> Iterator[Link]:
    for a, b in combinations(indexes, 2):
        on_switch = a in switched and b in switched
        if path := paths.get((a, b)):
            # Both have links to a switch and yet nothing in common: only a partition does that.
            yield Link(a, b, path=path, p2p=False, reason=OTHER_PARTITION) if on_switch else Link(a, b, path=path)
        elif (a, b) not in nvlinks:
            yield Link(a, b, reason=NOT_SHOWN)
        elif not on_switch:
            yield Link(a, b, nvlinks=nvlinks[a, b])


def _gpu(
    index: int, model: str | None, known: Architecture | None, switch_links: int, affinity: AffinityColumns
) -> Gpu:
    numa = affinity.numa
    first = int(numa.split(",")[0].split("-")[0]) if numa else None
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        model=model or UNKNOWN_MODEL,
        numa_node=first,
        numa_affinity=numa if numa and not numa.isdecimal() else None,
        cpu_affinity=affinity.cpus,
        compute_capability=known.compute_capability if known else None,
        switch_links=switch_links,
        memory_numa_node=int(affinity.memory_numa)
        if affinity.memory_numa and affinity.memory_numa.isdecimal()
        else None,
    )


def _nics(table: Table, labels: Mapping[int, str]) -> Iterator[Nic]:
    names = [name for name in table.devices if not GPU.fullmatch(name)]
    for name in names:
        to_gpus = ((index, table.cell(name, labels[index])) for index in sorted(labels))
        to_nics = ((other, table.cell(name, other)) for other in names if other != name)
        yield Nic(
            name,
            device=table.legend.get(name),
            paths=tuple((index, PciePath[cell]) for index, cell in to_gpus if cell),
            nic_paths=tuple((other, PciePath[cell]) for other, cell in to_nics if cell),
        )


def _nic_to_gpu(nic: Nic, gpu: Gpu) -> str:
    return _cell(dict(nic.paths).get(gpu.index), nic.numa_node, gpu.numa_node)


def _nic_to_nic(nic: Nic, other: Nic) -> str:
    if nic.name == other.name:
        return "X"
    said = dict(nic.nic_paths).get(other.name, dict(other.nic_paths).get(nic.name))
    return _cell(said, nic.numa_node, other.numa_node)


def _cell(path: PciePath | None, one: int | None, other: int | None) -> str:
    """Return a path's cell; where it is not known, the worst that two NUMA nodes allow, or `?` if not even these are known."""
    if path is not None:
        return path.label
    if one is None or other is None:
        return UNKNOWN_CELL
    return (PciePath.NODE if one == other else PciePath.SYS).label


def _padded(cell: str) -> str:
    return " X " if cell == "X" else cell
