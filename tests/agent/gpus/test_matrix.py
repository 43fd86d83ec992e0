"""The agent's matrix is the one that the machine's description implies, for every machine of the collection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.conftest import Discover
from tests.agent.expected import expected_matrix
from tests.nvml.library import MACHINES, machine
from topology.formats.matrix import print_matrix
from topology.node.model import NodeTopology

WITHOUT_GPUS = {"no_driver", "driver_updated", "no_gpu"}
NAMES = sorted(file.stem for file in MACHINES.glob("*.nvml") if file.stem not in WITHOUT_GPUS)

DGX1V = """\
 X  NV1 NV1 NV2 NV2 SYS SYS SYS
NV1  X  NV2 NV1 SYS NV2 SYS SYS
NV1 NV2  X  NV2 SYS SYS NV1 SYS
NV2 NV1 NV2  X  SYS SYS SYS NV1
NV2 SYS SYS SYS  X  NV1 NV1 NV2
SYS NV2 SYS SYS NV1  X  NV2 NV1
SYS SYS NV1 SYS NV1 NV2  X  NV2
SYS SYS SYS NV1 NV2 NV1 NV2  X """
PCIE = """\
 X   PIX  NODE NODE SYS  SYS  SYS  SYS
PIX   X   NODE NODE SYS  SYS  SYS  SYS
NODE NODE  X   PIX  SYS  SYS  SYS  SYS
NODE NODE PIX   X   SYS  SYS  SYS  SYS
SYS  SYS  SYS  SYS   X   PXB  NODE NODE
SYS  SYS  SYS  SYS  PXB   X   NODE NODE
SYS  SYS  SYS  SYS  NODE NODE  X   PHB
SYS  SYS  SYS  SYS  NODE NODE PHB   X """
HGX_H100 = "\n".join(" ".join("X" if i == j else "NV18" for j in range(8)) for i in range(8))
GOLDEN = {"dgx1v": DGX1V, "old_driver": DGX1V, "hgx_h100": HGX_H100, "pcie_l40s": PCIE}


def cells(node: NodeTopology) -> dict[tuple[int, int], str]:
    """Return the printed matrix by indexes (a, b), a < b."""
    rows = [line.split("\t") for line in print_matrix(node, legend=False).splitlines()]
    names = rows[0][1 : len(node) + 1]
    printed = {(row[0], name): cell.strip() for row in rows[1:] for name, cell in zip(names, row[1:], strict=False)}
    return {(int(a[3:]), int(b[3:])): cell for (a, b), cell in printed.items() if int(a[3:]) < int(b[3:])}


@pytest.mark.parametrize("name", NAMES)
def test_prints_the_matrix_that_the_description_implies(name: str, found: Discover) -> None:
    """Through the C library, the real binding, discovery and the printer, every cell comes out as described."""
    assert cells(found(name).topology) == expected_matrix(machine(name))


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_prints_the_matrix_written_down_by_hand(name: str, found: Discover) -> None:
    """So that description and oracle cannot be wrong together."""
    assert [list(row) for row in found(name).topology.matrix] == [line.split() for line in GOLDEN[name].splitlines()]


def test_collection_is_not_empty() -> None:
    """A wrong folder would make every test above pass."""
    assert {"dgx1v", "hgx_h100", "pcie_l40s", "lost_gpu", "dead_switch_links", "fabric_not_ready", "mig_on"} <= set(
        NAMES
    )


def test_description_that_makes_no_sense_is_refused(
    found: Discover, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A typing error in a description must not play another machine."""
    (tmp_path / "typo.nvml").write_text("gpu 0-3 name NVIDIA L4\nnvlnik 0 1 4\n")
    with pytest.raises(Exception, match="UNKNOWN"):
        found(tmp_path / "typo.nvml")
    assert "typo.nvml:2: cannot read `nvlnik 0 1 4`" in capfd.readouterr().err
