"""The networkx graph of a node: what people draw and query is what predictions are made on."""

from __future__ import annotations

import networkx as nx
import pytest

from topology.bandwidth.predict import Wiring
from topology.formats.catalog import MACHINES, machine
from topology.node.graph import build_graph, gpu_vertex
from topology.node.links import PciePath
from topology.node.model import Gpu, Link, Nic, NodeTopology


@pytest.mark.parametrize("name", MACHINES)
def test_every_gpu_reaches_the_system_over_pcie_alone(name: str) -> None:
    """Without its NVLinks each machine is one tree with the GPUs as leaves."""
    graph = build_graph(machine(name))
    graph.remove_edges_from([edge for edge in graph.edges if graph.edges[edge]["kind"] == "nvlink"])
    graph.remove_nodes_from(["nvswitch"])
    assert nx.is_tree(graph)
    assert all(graph.degree(gpu_vertex(gpu)) == 1 for gpu in machine(name).gpus)


@pytest.mark.parametrize("name", MACHINES)
def test_links_in_the_graph_are_the_links_of_the_matrix(name: str) -> None:
    """An NV# cell is the count on a direct edge, or the narrower of two edges to the NVSwitch."""
    node = machine(name)
    graph = build_graph(node)
    for i, j in node.pairs:
        ends = gpu_vertex(node.gpus[i]), gpu_vertex(node.gpus[j])
        direct = graph.edges[ends]["count"] if graph.has_edge(*ends) else 0
        switched = min(
            (graph.edges[end, "nvswitch"]["count"] if graph.has_edge(end, "nvswitch") else 0) for end in ends
        )
        assert direct + switched == node.nvlinks(i, j)


def test_wires_carry_what_nccl_counts_for_them() -> None:
    """Gen 4 x16 gives 24 GB/s, an A100 link 20, and two AMD sockets 16 between them."""
    gpus = tuple(Gpu(i, f"u{i}", "NVIDIA A100-SXM4-80GB", numa_node=i) for i in range(2))
    graph = build_graph(NodeTopology(gpus, (Link(0, 1, nvlinks=4, path=PciePath.SYS),), cpu_vendor="amd"))
    assert graph.edges["gpu0", "gpu1"]["gb_per_s"] == 80.0
    assert graph.edges["gpu0", "host-bridge0"]["gb_per_s"] == 24.0
    assert graph.edges["numa-node0", "system"] == {"kind": "smp", "count": 1, "gb_per_s": 16.0}


def test_a_nic_hangs_where_its_nearest_gpu_does() -> None:
    """A NIC under the switch of GPU 2 and 3 is joined to that switch."""
    pairs = [(0, 1, PciePath.PIX), (2, 3, PciePath.PIX), (0, 2, PciePath.SYS), (0, 3, PciePath.SYS)]
    links = tuple(Link(a, b, path=path) for a, b, path in pairs)
    nic = Nic("mlx5_0", paths=((0, PciePath.SYS), (2, PciePath.PIX), (3, PciePath.PIX)))
    graph = build_graph(NodeTopology(tuple(Gpu(i, f"u{i}", "Tesla T4") for i in range(4)), links, (nic,)))
    assert set(graph["nic:mlx5_0"]) == set(graph["gpu2"]) == set(graph["gpu3"])


@pytest.mark.parametrize("name", MACHINES)
def test_nearer_over_pcie_is_never_slower(name: str) -> None:
    """On every reference machine the rate between two GPUs falls with the label, as long as peer access does not differ."""
    node = machine(name)
    wiring = Wiring(node)
    by_path = sorted((node.path(i, j), -wiring.hop_gb_per_s[i][j]) for i, j in node.pairs if not node.nvlinks(i, j))
    assert [rate for _, rate in by_path] == sorted(rate for _, rate in by_path)
