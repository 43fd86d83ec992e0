"""A `topo -m` text of which rows are missing: shown as far as it was measured, and no further."""

from __future__ import annotations

import pytest

from topology.formats.matrix import describe_gaps, parse_matrix, print_matrix
from topology.node.links import PciePath
from topology.node.model import Gpu, Nic, NodeTopology

WHOLE = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0
GPU0\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tPIX
GPU1\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNODE
GPU2\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNODE
GPU3\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNODE
GPU4\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tSYS
GPU5\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tSYS
GPU6\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tSYS
GPU7\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tSYS
"""
PARTIAL = "".join(WHOLE.splitlines(keepends=True)[:5])


def test_a_cell_that_no_row_shows_is_unknown() -> None:
    """Four rows of eight say nothing of the pairs among the other four, nor of their way to a NIC."""
    node = parse_matrix(PARTIAL)
    assert node.matrix[0] == ("X", *7 * ("NV18",))
    assert node.matrix[7] == (*4 * ("NV18",), "?", "?", "?", "X")
    assert print_matrix(node).splitlines()[9].split()[:6] == ["NIC0", "PIX", "NODE", "NODE", "NODE", "?"]


def test_a_partial_matrix_says_how_much_is_missing() -> None:
    """Pairs of GPUs and paths of NICs are counted apart; a whole matrix says nothing."""
    assert describe_gaps(parse_matrix(PARTIAL)) == "6 of 28 pairs of GPUs and 4 of 8 paths of NICs"
    assert describe_gaps(parse_matrix(WHOLE)) is None


@pytest.mark.parametrize("rows", range(2, 10))
def test_what_is_printed_of_a_partial_matrix_reads_back_the_same(rows: int) -> None:
    """An unknown cell stays unknown, however many rows there were."""
    printed = print_matrix(parse_matrix("".join(WHOLE.splitlines(keepends=True)[:rows])))
    assert print_matrix(parse_matrix(printed)) == printed


def test_a_path_that_numa_nodes_bound_is_no_gap() -> None:
    """What a source leaves out and NUMA nodes tell is printed at its worst, as before."""
    gpus = (Gpu(0, "a", "m", numa_node=0), Gpu(1, "b", "m", numa_node=1))
    node = NodeTopology(gpus, nics=(Nic("NIC0", numa_node=0, paths=((1, PciePath.SYS),)),))
    assert describe_gaps(node) is None
