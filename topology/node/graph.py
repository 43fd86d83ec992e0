"""The node as a networkx graph: what is wired to what, and what each wire carries.

Vertices have a `kind` (`gpu`, `nvswitch`, `pcie-switch`, `host-bridge`, `numa-node`, `system`, `nic`); GPUs also `index` and
`model`. Edges have a `kind`: `nvlink`, `pcie`, `cpu-nvlink` from a POWER9 processor to its GPU, or `smp` between NUMA
nodes. They have a `count` (links side by side) and `gb_per_s`. That is the usable rate of one direction in decimal GB/s
by NCCL's constants. All edges but `nvlink` form a tree above the GPUs, rebuilt from the pairwise paths; where a matrix
contradicts itself the nearer relation is believed. Predictions (`topology.bandwidth.predict`) are made on this graph;
`topology.bandwidth.calibration` has what real machines make of the constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import networkx as nx

from topology.node.architectures import architecture_of, cpu_socket_gb_per_s, nvlink_gb_per_s
from topology.node.links import PciePath
from topology.node.model import Gpu, NodeTopology

PCIE_GB_PER_S = {1: 3.0, 2: 6.0, 3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""x16, one direction, by generation (NCCL: width times lane speed over 80)."""
POWER9_CPU_NVLINKS = 3
"""At most from one GPU to its processor (IBM AC922: three with two GPUs to a socket, two with three)."""
POWER9_SOCKETS = 2

# From the GPUs up: the vertices below which all pairs are at most this far apart.
_LEVELS = (
    (PciePath.PIX, "pcie-switch"),
    (PciePath.PXB, "pcie-switch"),
    (PciePath.PHB, "host-bridge"),
    (PciePath.NODE, "numa-node"),
    (PciePath.SYS, "system"),
)


def build_graph(node: NodeTopology) -> nx.Graph[str]:
    """Return the graph of a node; GPUs are `gpu0`, `gpu1`, … by their index.

    >>> from topology.node.model import Gpu, Link, NodeTopology
    >>> pair = NodeTopology((Gpu(0, "a", "Tesla V100"), Gpu(1, "b", "Tesla V100")), (Link(0, 1, nvlinks=2),))
    >>> build_graph(pair).edges["gpu0", "gpu1"]["gb_per_s"]
    40.0
    """
    graph: nx.Graph[str] = nx.Graph()
    for gpu in node.gpus:
        graph.add_node(gpu_vertex(gpu), kind="gpu", index=gpu.index, model=gpu.model)
    _add_nvlinks(graph, node)
    _add_pcie_tree(graph, node)
    _add_nics(graph, node)
    return graph


def gpu_vertex(gpu: Gpu) -> str:
    """Return the name of a GPU's vertex."""
    return f"gpu{gpu.index}"


@dataclass(frozen=True, slots=True)
class Route:
    """The way between two GPUs that uses no NVLink between GPUs."""

    host_gb_per_s: float
    """The narrowest of its PCIe wires (or NVLinks to a POWER9 processor)."""
    socket_gb_per_s: float
    """The wire between NUMA nodes; infinite where none is crossed."""


class Routes:
    """Ways over the tree of one graph."""

    def __init__(self, graph: nx.Graph[str]) -> None:
        self._graph = graph
        tree = nx.subgraph_view(graph, filter_edge=lambda a, b: graph.edges[a, b]["kind"] != "nvlink")
        self._down: dict[str, list[str]] = nx.single_source_shortest_path(tree, "system") if "system" in graph else {}

    def between(self, one: str, other: str) -> Route:
        """Return the way between two GPU vertices; they part at the lowest vertex that both have above them."""
        downs = self._down[one], self._down[other]
        shared = sum(1 for a, b in zip(*downs, strict=False) if a == b)
        host = socket = inf
        for down in downs:
            for hop in pairwise(down[shared - 1 :]):
                wire = self._graph.edges[hop]
                if wire["kind"] == "smp":
                    socket = min(socket, float(wire["gb_per_s"]))
                else:
                    host = min(host, float(wire["gb_per_s"]))
        return Route(host, socket)

    def uplink(self, vertex: str) -> tuple[str, float] | None:
        """Return the topmost PCIe switch above a GPU and the rate of the wire that leads on from it; `None` without switch."""
        for above, below in pairwise(self._down[vertex]):
            if self._graph.nodes[below]["kind"] == "pcie-switch":
                return below, float(self._graph.edges[above, below]["gb_per_s"])
        return None


def pcie_gb_per_s(gpu: Gpu) -> float:
    """Return the GPU's own PCIe rate; an unknown generation is read from the model, else 3; an unknown width is 16."""
    architecture = architecture_of(gpu.model)
    width = gpu.pcie_width or (architecture.pcie_width if architecture else 16)
    return PCIE_GB_PER_S[_pcie_generation(gpu)] * width / 16


def _pcie_generation(gpu: Gpu) -> int:
    architecture = architecture_of(gpu.model)
    generation = gpu.pcie_generation or (architecture.pcie_generation if architecture else 3)
    return min(max(generation, 1), 6)


def socket_gb_per_s(node: NodeTopology) -> float:
    """Return NCCL's rate between two of the node's NUMA nodes, by the CPU or by what its GPUs' PCIe generation suggests."""
    generation = max((_pcie_generation(gpu) for gpu in node.gpus), default=3)
    return cpu_socket_gb_per_s(node.cpu_vendor, node.cpu_model, generation)


def link_gb_per_s(gpu: Gpu) -> float:
    """Return the usable rate of one of the GPU's NVLinks, one direction."""
    architecture = architecture_of(gpu.model)
    if architecture is not None and architecture.bridge_gb_per_s is not None:
        return architecture.bridge_gb_per_s
    return nvlink_gb_per_s(compute_capability(gpu))


def compute_capability(gpu: Gpu) -> tuple[int, int] | None:
    """Return what NVML said, else what the product name says."""
    if gpu.compute_capability is not None:
        return gpu.compute_capability
    architecture = architecture_of(gpu.model)
    return architecture.compute_capability if architecture else None


def _add_nvlinks(graph: nx.Graph[str], node: NodeTopology) -> None:
    for (i, j), link in node.pairs.items():
        if link.nvlinks and link.p2p is not False:
            rate = min(link_gb_per_s(node.gpus[i]), link_gb_per_s(node.gpus[j]))
            _wire(graph, gpu_vertex(node.gpus[i]), gpu_vertex(node.gpus[j]), "nvlink", link.nvlinks, rate)
    for gpu in node.gpus:
        if gpu.switch_links:
            graph.add_node("nvswitch", kind="nvswitch")
            _wire(graph, gpu_vertex(gpu), "nvswitch", "nvlink", gpu.switch_links, link_gb_per_s(gpu))


def _add_pcie_tree(graph: nx.Graph[str], node: NodeTopology) -> None:
    below = {position: gpu_vertex(gpu) for position, gpu in enumerate(node.gpus)}
    names: dict[str, int] = {}
    for level, kind in _LEVELS:
        for cluster in _clusters(node, level):
            heads = {below[i] for i in cluster}
            # A switch that joins nothing would be invented; bridges, NUMA nodes and the system are always there.
            if kind == "pcie-switch" and len(heads) == 1:
                continue
            vertex = "system" if kind == "system" else f"{kind}{names.setdefault(kind, 0)}"
            names[kind] = names.get(kind, 0) + 1
            graph.add_node(vertex, kind=kind)
            for head in sorted(heads):
                members = [i for i in cluster if below[i] == head]
                _wire(graph, head, vertex, *_upward(node, members, level))
            for i in cluster:
                below[i] = vertex


def _upward(node: NodeTopology, members: list[int], level: PciePath) -> tuple[str, int, float]:
    """Return kind, count and rate of the wire from these GPUs up to the vertex that joins them with others at `level`."""
    if level is PciePath.SYS:
        return "smp", 1, socket_gb_per_s(node)
    cpu_links, rate = max(
        ((_cpu_nvlinks(node, i), link_gb_per_s(node.gpus[i])) for i in members), key=lambda wire: wire[0] * wire[1]
    )
    if cpu_links and level > PciePath.PXB:
        return "cpu-nvlink", cpu_links, rate
    return "pcie", 1, max(pcie_gb_per_s(node.gpus[i]) for i in members)


def _cpu_nvlinks(node: NodeTopology, position: int) -> int:
    """Return how many NVLinks a GPU has to its POWER9 processor: an equal part of its own for that and for each GPU beside it.

    The links that it has left do not tell: one to a peer may be down.
    """
    gpu = node.gpus[position]
    known = architecture_of(gpu.model)
    if node.cpu_vendor != "power9" or known is None or known.compute_capability != (7, 0):
        return 0
    spread = -(-len(node) // POWER9_SOCKETS)
    to_a_socket = spread if gpu.numa_node is None else sum(other.numa_node == gpu.numa_node for other in node.gpus)
    return min(known.max_nvlinks // to_a_socket, POWER9_CPU_NVLINKS)


def _clusters(node: NodeTopology, level: PciePath) -> list[list[int]]:
    """Return the positions grouped by who reaches whom over paths of at most `level`, in order."""
    if level is PciePath.SYS:
        return [[*range(len(node))]] if node.gpus else []
    joined: dict[int, list[int]] = {i: [i] for i in range(len(node))}
    for i, j in node.pairs:
        one, other = joined[i], joined[j]
        if one is not other and node.path(i, j) <= level:
            one += other
            joined.update(dict.fromkeys(other, one))
    return sorted(sorted(cluster) for i, cluster in joined.items() if i == min(cluster))


def _add_nics(graph: nx.Graph[str], node: NodeTopology) -> None:
    """Hang each NIC where its nearest GPU's way up reaches its own."""
    for nic in node.nics:
        vertex = f"nic:{nic.name}"
        graph.add_node(vertex, kind="nic", name=nic.name)
        nearest = min(nic.paths, key=lambda known: (known[1], known[0]), default=None)
        if nearest is not None:
            index, path = nearest
            way_up = list(_ancestors(graph, f"gpu{index}"))
            wanted = {"pcie-switch"} if path <= PciePath.PXB else {dict(_LEVELS)[path]}
            above = next((name for name in way_up if graph.nodes[name]["kind"] in wanted), way_up[-1])
            _wire(graph, vertex, above, "pcie", 1, PCIE_GB_PER_S[4])


def _ancestors(graph: nx.Graph[str], vertex: str) -> Iterable[str]:
    tree = nx.subgraph_view(graph, filter_edge=lambda a, b: graph.edges[a, b]["kind"] != "nvlink")
    return nx.shortest_path(tree, vertex, "system")[1:]


def _wire(graph: nx.Graph[str], a: str, b: str, kind: str, count: int, gb_per_s: float) -> None:
    graph.add_edge(a, b, kind=kind, count=count, gb_per_s=count * gb_per_s)
