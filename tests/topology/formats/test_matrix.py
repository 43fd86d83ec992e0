"""What a matrix carries survives printing and reading; what it does not carry is not invented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given

from tests.strategies.topologies import matrix_topologies, topologies
from topology.errors import SourceError
from topology.formats.catalog import MACHINES, machine
from topology.formats.matrix import parse_matrix, print_matrix
from topology.node.links import PciePath
from topology.node.model import Gpu, Link, Nic, NodeTopology


@pytest.mark.slow
@given(matrix_topologies())
def test_what_a_matrix_carries_survives(node: NodeTopology) -> None:
    """Links, affinities, NICs and their legend."""
    assert parse_matrix(print_matrix(node)) == node


@pytest.mark.slow
@given(topologies(min_gpus=1))
def test_printing_what_was_read_changes_nothing(node: NodeTopology) -> None:
    """Whatever a text said, what was made of it is a fixed point, cell by cell."""
    read = parse_matrix(print_matrix(node))
    assert parse_matrix(print_matrix(read)).matrix == read.matrix


def test_cells_that_contradict_a_switch_promise_too_little() -> None:
    """One pair that reads less than its GPUs' other pairs never makes a mesh of impossible width out of a switch box."""
    text = print_matrix(machine("hgx-h100")).replace("NV18", "NV17", 1)
    read = parse_matrix(text.replace("GPU1\tNV18", "GPU1\tNV17", 1))
    assert [gpu.switch_links for gpu in read.gpus] == [17, 17, 18, 18, 18, 18, 18, 18]


def test_a_count_that_no_gpu_has_is_refused() -> None:
    """NVML knows at most 36 links."""
    with pytest.raises(SourceError, match="no GPU has that many NVLinks"):
        parse_matrix("\tGPU0\tGPU1\nGPU0\t X \tNV37\nGPU1\tNV37\t X \n")


@pytest.mark.parametrize("name", MACHINES)
def test_reference_machines_print_as_they_always_did(name: str, golden: Callable[[str, str], None]) -> None:
    """A changed cell shows up in review."""
    text = print_matrix(machine(name))
    golden(f"{name}.topo.txt", text)
    assert print_matrix(parse_matrix(text, machine(name).gpus[0].model)) == text


def test_prints_tabs_as_nvidia_smi_does() -> None:
    """Padded X, two tabs before the last column, NICs after the GPUs, both legends."""
    gpus = (Gpu(0, "a", "m", numa_node=1, cpu_affinity="0-7"), Gpu(1, "b", "m"))
    nic = Nic("NIC0", device="mlx5_0", paths=((0, PciePath.PIX), (1, PciePath.SYS)))
    lines = print_matrix(NodeTopology(gpus, (Link(0, 1, path=PciePath.PHB),), (nic,))).splitlines()
    assert lines[:4] == [
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
        "GPU0\t X \tPHB\tPIX\t0-7\t1\t\tN/A",
        "GPU1\tPHB\t X \tSYS\t\tN/A\t\tN/A",
        "NIC0\tPIX\tSYS\t X ",
    ]
    assert "Legend:" in lines
    assert lines[-1] == "  NIC0: mlx5_0"


def test_legend_can_be_left_out() -> None:
    """For comparing, only the rows matter."""
    assert "Legend" not in print_matrix(machine("dgx-1v"), legend=False)


def test_unknown_paths_print_as_the_worst_that_numa_allows() -> None:
    """No placement may rest on hope; a NIC of whose way to a GPU nothing is known has none to print."""
    gpus = (Gpu(0, "a", "m", numa_node=0), Gpu(1, "b", "m", numa_node=0), Gpu(2, "c", "m"))
    nics = (Nic("NIC0", numa_node=0), Nic("NIC1", numa_node=0))
    rows = [line.split("\t") for line in print_matrix(NodeTopology(gpus, nics=nics), legend=False).splitlines()]
    assert rows[1][1:6] == [" X ", "NODE", "SYS", "NODE", "NODE"]
    assert rows[4][1:6] == ["NODE", "NODE", "?", " X ", "NODE"]


def test_two_gpus_of_one_board_print_as_one_switch() -> None:
    """nvidia-smi has no word of its own for them, nor for a NIC inside a GPU's board."""
    gpus = (Gpu(0, "a", "m"), Gpu(1, "b", "m"))
    nic = Nic("NIC0", paths=((0, PciePath.INTERNAL), (1, PciePath.SYS)))
    text = print_matrix(NodeTopology(gpus, (Link(0, 1, path=PciePath.INTERNAL),), (nic,)), legend=False)
    assert text.splitlines()[1].split("\t")[2:4] == ["PIX", "PIX"]


def test_pair_without_peer_access_prints_its_path() -> None:
    """NCCL refuses links that NVML denies, so they do not count."""
    node = machine("rtx-3090-2")
    denied = replace(node, links=tuple(replace(link, p2p=False) for link in node.links))
    assert denied.label(0, 1) == "PHB"
    assert "NV" not in print_matrix(denied, legend=False)
