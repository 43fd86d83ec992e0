"""What happens to a matrix between nvidia-smi and us, one trap a test."""

from __future__ import annotations

import re

import pytest

from topology.errors import SourceError
from topology.formats.matrix import OTHER_PARTITION, parse_matrix, print_matrix
from topology.node.links import PciePath
from topology.node.model import NOT_SHOWN, NodeTopology

PAIR = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPIX\t0-23,48-71\t0\t\tN/A
GPU1\tNV4\t X \tSYS\t24-47,72-95\t1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t\t
"""


def cells(node: NodeTopology) -> list[str]:
    return [" ".join(row) for row in node.matrix]


def switched(count: int, links: int, rows: int | None = None) -> str:
    """Write a matrix in which every pair reads NV`links`; with fewer `rows` than GPUs it is cut."""
    names = [f"GPU{index}" for index in range(count)]
    body = [[name, *("X" if name == other else f"NV{links}" for other in names)] for name in names]
    return "\n".join(" ".join(line) for line in [["", *names], *body[:rows]])


def refusal(text: str) -> tuple[int, int, str]:
    with pytest.raises(SourceError) as caught:
        parse_matrix(text)
    return caught.value.line, caught.value.column, caught.value.reason


def test_reads_what_nvidia_smi_prints() -> None:
    """Tabs, padded X, a doubled tab before the last column."""
    node = parse_matrix(PAIR)
    assert cells(node) == ["X NV4", "NV4 X"]
    assert [(gpu.uuid, gpu.numa_node, gpu.cpu_affinity) for gpu in node.gpus] == [
        ("GPU-0", 0, "0-23,48-71"),
        ("GPU-1", 1, "24-47,72-95"),
    ]
    assert node.nics[0].paths == ((0, PciePath.PIX), (1, PciePath.SYS))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: re.sub(r"[ \t]+", " ", text), id="every blank run collapsed to one space"),
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="Windows line ends"),
        pytest.param(lambda text: text.replace("\n", "\n\n"), id="blank lines between rows"),
        pytest.param(lambda text: "\x1b[4m" + text.replace("\n", "\x1b[0m\n", 1), id="underlined header"),
        pytest.param(lambda text: "[4m" + text.replace("\n", "[0m\n", 1), id="underline codes without escape"),
        pytest.param(
            lambda text: f"# a comment\nuser@host:~$ nvidia-smi topo -m\n{text}user@host:~$ \n", id="shell prompt"
        ),
        pytest.param(lambda text: f"GPU0 and GPU1 are bridged:\n```\n{text}```\nGPU0 is fine\n", id="prose around"),
        pytest.param(lambda text: text[1:], id="header flush left"),
        pytest.param(lambda text: text.replace("GPU0\tGPU1\tNIC0\t", "GPU0GPU1NIC0"), id="labels run together"),
        pytest.param(lambda text: text.replace("NIC0\tCPU", "NIC0CPU"), id="label glued to CPU Affinity"),
        pytest.param(lambda text: text.replace("\t\t\tN/A", "\tN/A").replace("\t\tN/A", "\tN/A"), id="no doubled tab"),
        pytest.param(lambda text: text.replace("\t\tN/A", "").replace("\tGPU NUMA ID", ""), id="no GPU NUMA ID"),
        pytest.param(lambda text: text + "\n" + text.replace("NV4", "SYS"), id="a second matrix after it"),
        pytest.param(lambda text: "\ufeff" + text, id="byte order mark"),
        pytest.param(lambda text: text.expandtabs(8), id="columns of eight blanks"),
        pytest.param(lambda text: text.rstrip("\n\t "), id="last line end lost"),
    ],
)
def test_layout_does_not_matter(spoil: object) -> None:
    """However the text was mangled on its way, the same machine comes out."""
    assert callable(spoil)
    assert parse_matrix(spoil(PAIR)) == parse_matrix(PAIR)


def test_soc_is_sys() -> None:
    """Drivers before 2017 called it so."""
    assert cells(parse_matrix("GPU0 GPU1 CPU Affinity\nGPU0 X SOC 0-11\nGPU1 SOC X 0-11")) == ["X SYS", "SYS X"]


def test_nic_columns_may_stand_in_any_order() -> None:
    """Names count, places do not."""
    node = parse_matrix("  GPU0 mlx5_2 mlx5_0\nGPU0 X SYS PIX\nmlx5_2 SYS X NODE\nmlx5_0 PIX NODE X")
    assert [(nic.name, nic.paths) for nic in node.nics] == [
        ("mlx5_2", ((0, PciePath.SYS),)),
        ("mlx5_0", ((0, PciePath.PIX),)),
    ]
    assert node.nics[0].nic_paths == (("mlx5_0", PciePath.NODE),)


def test_nic_columns_need_no_rows() -> None:
    """The rows of GPUs say how near a NIC is; what NICs are to each other stays unknown."""
    node = parse_matrix("  GPU0 NIC0 NIC1\nGPU0 X PIX SYS")
    assert [nic.nic_paths for nic in node.nics] == [(), ()]
    assert node.nics[1].paths == ((0, PciePath.SYS),)


def test_nic_rows_need_no_cells() -> None:
    """A name alone says nothing and breaks nothing."""
    assert parse_matrix("  GPU0 NIC0\nGPU0 X PIX\nNIC0\n").nics[0].paths == ((0, PciePath.PIX),)


def test_nic_legend_names_the_devices() -> None:
    """NIC0 is a label of the matrix, mlx5_7 is the kernel's name."""
    node = parse_matrix(PAIR + "\nLegend:\n\n  X = Self\n\nNIC Legend:\n\n  NIC0: mlx5_7\n  NIC9: mlx5_9\n")
    assert [(nic.name, nic.device) for nic in node.nics] == [("NIC0", "mlx5_7")]


@pytest.mark.parametrize(
    ("tail", "cpus", "numa"),
    [
        ("0-31,64-95 0 N/A", "0-31,64-95", 0),
        ("0-31,64-950 N/A", "0-31,64-95", 0),
        ("32-63,96-12710N/A", "32-63,96-127", 10),
        ("0 N/A", None, 0),
        ("1-1 N/A", "1-1", None),
        ("6,14,22,30 3 N/A", "6,14,22,30", 3),
        ("N/A", None, None),
        ("", None, None),
        ("N/A 1 N/A", None, 1),
        ("0-23 N/A N/A", "0-23", None),
    ],
)
def test_trailing_columns_may_be_blank_or_glued(tail: str, cpus: str | None, numa: int | None) -> None:
    """All three columns are named, and this is all that is left of their values."""
    gpu = parse_matrix(f" GPU0 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X {tail}").gpus[0]
    assert (gpu.cpu_affinity, gpu.numa_node, gpu.memory_numa_node) == (cpus, numa, None)


def test_blank_cpu_affinity_between_tabs_stays_blank() -> None:
    """A cgroup can hide all CPUs; the next column does not move up."""
    gpu = parse_matrix("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t\t12").gpus[0]
    assert (gpu.cpu_affinity, gpu.numa_node) == (None, 12)


def test_values_are_found_under_their_columns() -> None:
    """In text of fixed columns a blank value leaves a hole, not a shift."""
    gpu = parse_matrix("     GPU0  CPU Affinity  NUMA Affinity\nGPU0  X                  12").gpus[0]
    assert (gpu.cpu_affinity, gpu.numa_node) == (None, 12)


def test_numa_affinity_may_be_a_list() -> None:
    """Grace shows spare memory nodes; the first is the GPU's host node, and the list prints back."""
    node = parse_matrix(" GPU0 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X 0-71 0,3-9,11-17 2")
    gpu = node.gpus[0]
    assert (gpu.numa_node, gpu.numa_affinity, gpu.memory_numa_node) == (0, "0,3-9,11-17", 2)
    assert parse_matrix(print_matrix(node)) == node


def test_columns_that_the_header_lost_are_still_read() -> None:
    """Without names the order is nvidia-smi's."""
    gpu = parse_matrix(" GPU0\nGPU0 X 0-15 1").gpus[0]
    assert (gpu.cpu_affinity, gpu.numa_node) == ("0-15", 1)


def test_pcie_only_matrix_has_no_nvlinks() -> None:
    """`topo -mp` hides NVLink and shows the path behind it."""
    node = parse_matrix(" GPU0 GPU1\nGPU0 X PXB\nGPU1 PXB X")
    assert [(link.nvlinks, link.path) for link in node.links] == [(0, PciePath.PXB)]


def test_path_behind_nvlinks_is_unknown() -> None:
    """An NV# cell hides it; it is not guessed."""
    assert parse_matrix(PAIR).links[0].path is None


def test_indexes_may_have_holes() -> None:
    """A lost GPU leaves one."""
    node = parse_matrix(" GPU0 GPU3\nGPU0 X PHB\nGPU3 PHB X")
    assert [gpu.index for gpu in node.gpus] == [0, 3]


def test_missing_rows_are_filled_by_symmetry() -> None:
    """What GPU 0 says of GPU 2 holds the other way round; what nobody says is kept as unknown, and says so."""
    node = parse_matrix(" GPU0 GPU1 GPU2\nGPU0 X NV1 SYS\n...\n")
    assert cells(node) == ["X NV1 SYS", "NV1 X ?", "SYS ? X"]
    assert [link.reason for link in node.links] == [None, None, NOT_SHOWN]


def test_row_cut_on_the_right_is_filled_by_symmetry() -> None:
    """A narrow terminal cuts all rows alike."""
    node = parse_matrix(" GPU0 GPU1 GPU2\nGPU0 X NV1\nGPU1 NV1 X\nGPU2 SYS NV2")
    assert cells(node) == ["X NV1 SYS", "NV1 X NV2", "SYS NV2 X"]


@pytest.mark.parametrize(("gpus", "links", "rows"), [(8, 18, 8), (8, 8, 8), (4, 18, 4), (16, 6, 16), (16, 6, 1)])
def test_more_links_than_a_gpu_has_go_to_a_switch(gpus: int, links: int, rows: int) -> None:
    """7 × 18 links cannot leave one GPU; they are 18, counted seven times. One row of a cut matrix is enough to see it."""
    node = parse_matrix(switched(gpus, links, rows))
    assert [gpu.switch_links for gpu in node.gpus] == [links] * gpus
    assert not any(link.nvlinks for link in node.links)
    assert {node.nvlinks(gpus - 1, other) for other in range(gpus - 1)} == {links}


@pytest.mark.parametrize(("gpus", "links"), [(4, 4), (4, 6), (2, 18), (2, 12)])
def test_links_that_a_gpu_can_have_are_direct(gpus: int, links: int) -> None:
    """4 × A100 or GH200 without a switch, bridged pairs."""
    node = parse_matrix(switched(gpus, links))
    assert [gpu.switch_links for gpu in node.gpus] == [0] * gpus
    assert all(link.nvlinks == links for link in node.links)


def test_the_model_tells_how_many_links_a_gpu_has() -> None:
    """Four of sixteen V100 on a DGX-2 read 3 × 6 links, and a V100 has six."""
    assert parse_matrix(switched(4, 6), "Tesla V100-SXM3-32GB").gpus[0].switch_links == 6
    assert parse_matrix(switched(4, 6), "NVIDIA GH200 480GB").gpus[0].switch_links == 0


def test_gpu_off_the_fabric_has_no_switch_links() -> None:
    """One GPU of the B200 box reads NODE and SYS to all others."""
    text = switched(5, 18).replace("GPU4 NV18 NV18 NV18 NV18", "GPU4 SYS SYS SYS SYS")
    node = parse_matrix(re.sub(r"(GPU[0-3] .*) NV18$", r"\1 SYS", text, flags=re.MULTILINE))
    assert [gpu.switch_links for gpu in node.gpus] == [18, 18, 18, 18, 0]
    assert node.links[0].path is PciePath.SYS


def test_gpu_with_dead_links_to_the_switch_has_fewer() -> None:
    """Through a switch a pair reads the smaller of both GPUs' links."""
    rows = ["GPU0 X NV16 NV16 NV16", "GPU1 NV16 X NV18 NV18", "GPU2 NV16 NV18 X NV18", "GPU3 NV16 NV18 NV18 X"]
    node = parse_matrix("\n".join([" GPU0 GPU1 GPU2 GPU3", *rows]))
    assert [gpu.switch_links for gpu in node.gpus] == [16, 18, 18, 18]
    assert cells(node) == [row.split(maxsplit=1)[1] for row in rows]


def test_two_islands_on_switches_are_partitions() -> None:
    """Only GPUs of one partition reach each other over the switch; NVML then denies peer access between them."""
    island, other = ["NV12"] * 3, ["SYS"] * 3
    names = [f"GPU{index}" for index in range(6)]
    rows = [[*island, *other] if index < 3 else [*other, *island] for index in range(6)]
    for index, row in enumerate(rows):
        row[index] = "X"
    node = parse_matrix(
        "\n".join(" ".join(line) for line in [["", *names], *([n, *r] for n, r in zip(names, rows, strict=True))])
    )
    assert [list(row) for row in node.matrix] == rows
    assert {(link.p2p, link.reason) for link in node.links} == {(False, OTHER_PARTITION)}


def test_cells_that_fit_no_switch_print_back_as_they_were() -> None:
    """Nothing is inferred from a matrix that contradicts the rule."""
    rows = ["X NV12 NV4 NV12", "NV12 X NV12 NV4", "NV4 NV12 X NV12", "NV12 NV4 NV12 X"]
    text = "\n".join([" GPU0 GPU1 GPU2 GPU3", *(f"GPU{index} {row}" for index, row in enumerate(rows))])
    node = parse_matrix(text)
    assert cells(node) == rows
    assert not any(gpu.switch_links for gpu in node.gpus)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 0, 0, "no line names the GPUs"),
        ("hello\nworld", 0, 0, "no line names the GPUs"),
        (" GPU0 GPU1\n", 1, 1, "no row of a GPU"),
        (" GPU0 GPU1\nGPU0 X NV1\nGPU1 NV2 X", 3, 6, "GPU0 to GPU1 reads NV1 (line 2, column 8)"),
        (" GPU0 GPU1\nGPU0 NV1 X", 2, 6, "X belongs where row and column meet"),
        (" GPU0 GPU1\nGPU0 X X", 2, 8, "X belongs where row and column meet"),
        (" GPU0 GPU1\nGPU0 X FOO", 2, 8, "reads FOO, which is no link"),
        (" GPU0 GPU1\nGPU0 OK OK", 2, 6, "reads OK, which is no link"),
        (" GPU0 GPU1\nGPU0 X 0-19", 2, 8, "reads 0-19, which is no link"),
        (" GPU0 GPU1\nGPU0 X NV", 2, 8, "reads NV, which is no link"),
        (" GPU0 GPU1\nGPU0 X NV1 NV1", 2, 12, "more cells than the header has devices"),
        (" GPU0 GPU1\nGPU0 X NV1\nGPU2 X NV1", 3, 1, "a row of GPU2, which the header does not name"),
        (" GPU0 GPU1\nGPU0 X NV1\nGPU0 X NV2", 3, 1, "a second row of GPU0"),
        (" GPU0 GPU0\nGPU0 X X", 1, 1, "names a device twice"),
        (" GPU0 NIC0\nGPU0 X NV1", 2, 8, "only GPUs have NVLinks"),
        (" " + " ".join(f"GPU{index}" for index in range(73)), 1, 1, "more than 72 GPUs"),
        ("# c\n GPU0 NIC0 NIC1\nGPU0 X PIX PIX\nNIC0 PIX X SYS\nNIC1 PIX PIX X", 5, 10, "NIC0 to NIC1 reads SYS"),
    ],
)
def test_what_is_really_broken_is_refused_with_its_place(text: str, line: int, column: int, reason: str) -> None:
    """Line and column count from 1 in what is visible; 0 is the whole text."""
    where = refusal(text)
    assert where[:2] == (line, column)
    assert reason in where[2]
