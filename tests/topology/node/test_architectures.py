"""What a product name says: the names that resemble each other, and that no name falls to a relative's entry."""

from __future__ import annotations

import pytest

from topology.node.architectures import architecture_of


@pytest.mark.parametrize(
    ("model", "capability", "max_nvlinks", "pcie_generation", "pcie_width", "peer_access"),
    [
        ("NVIDIA A100-SXM4-80GB", (8, 0), 12, 4, 16, True),
        ("NVIDIA RTX A1000", (8, 6), 0, 4, 8, True),
        ("NVIDIA A10", (8, 6), 0, 4, 16, True),
        ("NVIDIA H200", (9, 0), 18, 5, 16, True),
        ("NVIDIA H20-3e", (9, 0), 18, 5, 16, True),
        ("NVIDIA L40S", (8, 9), 0, 4, 16, True),
        ("NVIDIA L20", (8, 9), 0, 4, 16, True),
        ("NVIDIA L4", (8, 9), 0, 4, 16, False),
        ("Quadro RTX 6000", (7, 5), 2, 3, 16, True),
        ("Quadro RTX 8000", (7, 5), 2, 3, 16, True),
        ("Quadro RTX 3000", (7, 5), 0, 3, 16, True),
        ("Quadro RTX 4000", (7, 5), 0, 3, 16, True),
        ("Quadro RTX 4000 with Max-Q Design", (7, 5), 0, 3, 16, True),
        ("Quadro RTX 5000", (7, 5), 1, 3, 16, True),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9), 0, 4, 16, True),
        ("NVIDIA RTX 5880 Ada Generation", (8, 9), 0, 4, 16, True),
        ("NVIDIA RTX 4000 SFF Ada Generation", (8, 9), 0, 4, 16, True),
        ("NVIDIA RTX 2000 Ada Generation", (8, 9), 0, 4, 8, True),
        ("NVIDIA GeForce RTX 4090 D", (8, 9), 0, 4, 16, False),
        ("NVIDIA RTX 6000D", (12, 0), 0, 5, 16, True),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 0, 5, 16, True),
    ],
)
def test_a_name_is_not_taken_for_its_neighbours(
    model: str, capability: tuple[int, int], max_nvlinks: int, pcie_generation: int, pcie_width: int, peer_access: bool
) -> None:
    """Generations share numbers: three of them have an RTX 6000, and A100 begins RTX A1000."""
    found = architecture_of(model)
    assert found is not None
    assert (found.compute_capability, found.max_nvlinks) == (capability, max_nvlinks)
    assert (found.pcie_generation, found.pcie_width, found.peer_access) == (
        pcie_generation,
        pcie_width,
        peer_access,
    )
