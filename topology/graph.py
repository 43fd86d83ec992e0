"""The node as a networkx graph: what is wired to what, and what each wire carries.

Vertices have a `kind` (`gpu`, `nvswitch`, `pcie-switch`, `host-bridge`, `numa-node`, `system`, `nic`); GPUs also `index` and
`model`. Edges have a `kind` (`nvlink`, `pcie`, `smp`), a `count` (links side by side) and `gb_per_s`, the usable rate of one
direction in decimal GB/s by NCCL's constants. PCIe edges and the vertices above the GPUs form a tree, rebuilt from the pairwise
paths; where a matrix contradicts itself the nearer relation is believed. Predictions (`topology.bandwidth`) are made on this
graph and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import networkx as nx

from topology.architectures import architecture_of, nvlink_gb_per_s
from topology.links import PciePath
from topology.model import Gpu, NodeTopology

PCIE_GB_PER_S = {1: 3.0, 2: 6.0, 3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""x16, one direction, by generation (NCCL: width times lane speed over 80)."""
SOCKET_GB_PER_S = {"intel": 10.0, "amd": 16.0, "power9": 32.0, "arm": 6.0}
"""Between CPU sockets (NCCL's SMP constants; Skylake for Intel)."""
DEFAULT_SOCKET_GB_PER_S = 10.0
INTEL_GPU_TRAFFIC_COST = 1.2
"""NCCL: traffic between GPUs through an Intel CPU costs 6/5."""
HOST_STAGED_RATIO = 0.75
"""What is left of a PCIe link when a copy goes through the root complex, in and out again."""

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

    >>> from topology.model import Gpu, Link, NodeTopology
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


def pcie_route_gb_per_s(graph: nx.Graph[str], source: str, target: str) -> float:
    """Return the narrowest wire between two GPUs on the PCIe tree."""
    tree = nx.subgraph_view(graph, filter_edge=lambda a, b: graph.edges[a, b]["kind"] != "nvlink")
    route = nx.shortest_path(tree, source, target)
    return min(float(graph.edges[hop]["gb_per_s"]) for hop in pairwise(route))


def pcie_gb_per_s(gpu: Gpu) -> float:
    """Return the GPU's own PCIe rate; an unknown generation is read from the model, else 3; an unknown width is 16."""
    architecture = architecture_of(gpu.model)
    generation = gpu.pcie_generation or (architecture.pcie_generation if architecture else 3)
    width = gpu.pcie_width or (architecture.pcie_width if architecture else 16)
    return PCIE_GB_PER_S[min(max(generation, 1), 6)] * width / 16


def staged_gb_per_s(node: NodeTopology, gpu: Gpu) -> float:
    """Return what the GPU's PCIe link gives to a copy that goes through the host."""
    cost = INTEL_GPU_TRAFFIC_COST if node.cpu_vendor == "intel" else 1.0
    return pcie_gb_per_s(gpu) * HOST_STAGED_RATIO / cost


def link_gb_per_s(gpu: Gpu) -> float:
    """Return the usable rate of one of the GPU's NVLinks, one direction."""
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
                members = [node.gpus[i] for i in cluster if below[i] == head]
                _wire(graph, head, vertex, "smp" if kind == "system" else "pcie", 1, _uplink(node, members, level))
            for i in cluster:
                below[i] = vertex


def _uplink(node: NodeTopology, members: list[Gpu], level: PciePath) -> float:
    """Return the rate of the wire from these GPUs up to the vertex that joins them with others at `level`."""
    if level <= PciePath.PXB:
        return max(map(pcie_gb_per_s, members))
    staged = max(staged_gb_per_s(node, gpu) for gpu in members)
    if level is PciePath.SYS:
        return min(staged, SOCKET_GB_PER_S.get(node.cpu_vendor or "", DEFAULT_SOCKET_GB_PER_S))
    return staged


def _clusters(node: NodeTopology, level: PciePath) -> list[list[int]]:
    """Return the positions grouped by who reaches whom over paths of at most `level`, in order."""
    near: nx.Graph[int] = nx.Graph()
    near.add_nodes_from(range(len(node)))
    near.add_edges_from(pair for pair in node.pairs if level is PciePath.SYS or node.path(*pair) <= level)
    return sorted(map(sorted, nx.connected_components(near)))


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
