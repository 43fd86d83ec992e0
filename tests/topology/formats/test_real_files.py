"""Real matrices and XML files, kept outside of the project, are read, or refused with line, column and reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topology.errors import SourceError
from topology.formats.catalog import machine
from topology.formats.matrix import parse_matrix, print_matrix
from topology.formats.nccl_xml import parse_nccl_xml
from topology.node.model import NOT_SHOWN, UNKNOWN_CELL

GRAPHS = {"azure_ncv4-graph.xml"}
WITHOUT_GPUS = {"aws_g5_48xl-topo.xml"}

SAME_MACHINE = {
    "dgx1p_8xp100_4hca": "dgx-1p",
    "dgx1v_8xv100_4hca": "dgx-1v",
    "v100_sxm2_8_cubemesh_oneflow": "dgx-1v",
    "v100_p3_8xlarge": "v100-sxm2-4",
    "dgxa100_8_12hca": "dgx-a100",
    "a100_sxm4_4_nv4_polaris": "a100-sxm4-4",
    "a100_pcie_8_nv12_pairs": "a100-pcie-8-pairs",
    "a100_4_nv12_nv10_degraded_pair": "a100-pcie-4-degraded-pair",
    "h100_4_nv6_mesh_4nic": "h100-sxm5-4",
    "h20_8_8nic": "hgx-h100",
    "h100_nvl_8_nv12_pairs": "h100-nvl-8-pairs",
    "b200_8_gpu2_off_fabric": "hgx-b200-gpu2-off-fabric",
    "gh200_4gpu_nv6_deltaai": "gh200-4",
    "grace_blackwell_4gpu_8nic_gpunuma": "gb200-tray",
    "l40s_g6e_12xlarge_node": "l40s-4",
    "l4_8_phb_sys": "l4-8",
    "rtx3090_2_nv4": "rtx-3090-2",
    "rtx4090_8_pcie_switch_4_4_onesocket": "rtx-4090-8",
    "power9_ac922_4gpu_nv3": "ac922-4",
}
"""File → the machine of our catalogue that has the same GPU block."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder: Path = metafunc.config.getoption("--shared")
    matrices = [*folder.glob("topologies/*.topo.txt"), *folder.glob("bandwidth/machines/*.topo.txt")]
    kinds = {"matrix_file": matrices, "xml_file": list(folder.glob("topologies/*.xml"))}
    for name, files in kinds.items():
        if name in metafunc.fixturenames:
            nothing = pytest.param(None, marks=pytest.mark.skip(reason=f"no real data at {folder}"), id="none")
            real = [pytest.param(path, id=path.name) for path in sorted(files)]
            metafunc.parametrize(name, real or [nothing])


@pytest.mark.usefixtures("shared_dir")
def test_every_real_matrix_is_read(matrix_file: Path) -> None:
    """All cells that the file shows come back, however it is laid out."""
    text = matrix_file.read_text(encoding="utf-8")
    node = parse_matrix(text)
    shown = [line.split() for line in text.splitlines() if re.match(r"GPU\d+\s+(X|NV|PIX|PXB|PHB|NODE|SYS|SOC)", line)]
    for row in shown:
        position = node.positions[int(row[0].removeprefix("GPU"))]
        assert list(node.matrix[position]) == [cell.replace("SOC", "SYS") for cell in row[1 : len(node) + 1]]


@pytest.mark.usefixtures("shared_dir")
def test_every_real_matrix_survives_a_round_trip(matrix_file: Path) -> None:
    """Printing and reading again changes nothing; only "not shown" cannot be printed."""
    node = parse_matrix(matrix_file.read_text(encoding="utf-8"))
    again = parse_matrix(print_matrix(node))
    assert again.matrix == node.matrix
    if not any(link.reason == NOT_SHOWN for link in node.links):
        assert again == node


@pytest.mark.usefixtures("shared_dir")
def test_every_real_matrix_is_read_without_its_layout(matrix_file: Path) -> None:
    """One blank between words is enough."""
    text = matrix_file.read_text(encoding="utf-8")
    assert parse_matrix(re.sub(r"[ \t]+", " ", text)) == parse_matrix(text)


@pytest.mark.parametrize(("stem", "name"), SAME_MACHINE.items())
def test_our_machines_look_like_the_real_ones(shared_dir: Path, stem: str, name: str) -> None:
    """The GPU block of the catalogue is the one that such a machine printed, cell by cell."""
    model = machine(name).gpus[0].model
    real = parse_matrix((shared_dir / "topologies" / f"{stem}.topo.txt").read_text(encoding="utf-8"), model)
    assert real.matrix == machine(name).matrix
    assert [gpu.switch_links for gpu in real.gpus] == [gpu.switch_links for gpu in machine(name).gpus]


def test_cut_matrix_of_a_dgx_2_stays_usable(shared_dir: Path) -> None:
    """Four rows of sixteen show that all links go to a switch; the pairs that they do not show say so."""
    text = (shared_dir / "topologies" / "dgx2_16xv100_partial.topo.txt").read_text(encoding="utf-8")
    node = parse_matrix(text, "Tesla V100-SXM3-32GB")
    whole = machine("dgx-2").matrix
    assert node.matrix[:4] == whole[:4]
    assert {cell for row in node.matrix[4:] for cell in row[4:]} == {"X", UNKNOWN_CELL}
    assert {node.nvlinks(4, other) for other in range(5, 16)} == {6}
    assert sum(link.reason == NOT_SHOWN for link in node.links) == 12 * 11 // 2


@pytest.mark.usefixtures("shared_dir")
def test_every_real_xml_file_is_read_or_refused(xml_file: Path) -> None:
    """Graphs hold no topology, and one cloud's file does not say which devices are GPUs."""
    text = xml_file.read_text(encoding="utf-8")
    if xml_file.name in GRAPHS | WITHOUT_GPUS:
        with pytest.raises(SourceError) as caught:
            parse_nccl_xml(text)
        assert caught.value.line >= 1
        assert caught.value.column >= 1
    else:
        node = parse_nccl_xml(text)
        assert len(node) in (4, 8)
        assert [gpu.index for gpu in node.gpus] == list(range(len(node)))
