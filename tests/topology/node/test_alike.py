"""What of a machine is alike: position by position, and block by block."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.strategies.large import nearly_regular, nested, nvswitch, pcie_tree
from topology.formats.catalog import machine
from topology.node.alike import Block, alike, unlike
from topology.node.links import PciePath
from topology.node.model import NodeTopology


@pytest.mark.parametrize(
    ("node", "count"),
    [
        (nvswitch(72), 2),
        (nvswitch(72, numa_nodes=36), 4),
        (pcie_tree(4, 4, 2), 8),
        (pcie_tree(4, 9, 2), 8),
        (nested((2, 2, 9, 2), (PciePath.PIX, PciePath.PXB, PciePath.NODE, PciePath.SYS), "NVIDIA L4", 36), 16),
        (machine("dgx-1v"), 8),
    ],
)
def test_two_of_each_level_stand_for_a_regular_machine(node: NodeTopology, count: int) -> None:
    """However many there are; in a hybrid cube mesh nobody stands for another one."""
    assert unlike(node.blocks) == count


def test_who_has_the_same_ties_to_others_is_not_alike() -> None:
    """The third and the fourth have one tie of each kind, the other way round."""
    ties = [[0, 3, 1, 2], [3, 0, 2, 1], [1, 2, 0, 4], [2, 1, 4, 0]]
    assert alike("abcc", ties) == [[0], [1], [2], [3]]
    assert alike("aabb", ties) == [[0], [1], [2], [3]]
    assert alike("abcc", [[0, 3, 1, 1], [3, 0, 2, 2], [1, 2, 0, 4], [1, 2, 4, 0]]) == [[0], [1], [2, 3]]


def matrix(node: NodeTopology, order: list[int]) -> list[list[object]]:
    """Return all that joins the GPUs, taken in this order."""
    pairs = node.pairs
    between = [[pairs[min(i, j), max(i, j)] if i != j else None for j in order] for i in order]
    own = [(node.gpus[i].model, node.gpus[i].pcie_generation) for i in order]
    return [[own, *((link.nvlinks, link.path, link.p2p) if link else None for link in row)] for row in between]


def exchanged(order: list[int], block: Block) -> list[int]:
    """Return the order with the first and the last part of a block in each other's place."""
    first, last = block.parts[0], block.parts[-1]
    one, other = ([i for i in order if part.members >> i & 1] for part in (first, last))
    places = dict(zip([*one, *other], [*other, *one], strict=True))
    return [places.get(i, i) for i in order]


def all_blocks(blocks: tuple[Block, ...]) -> list[Block]:
    return [each for block in blocks if block.parts for each in (block, *all_blocks(block.parts))]


@pytest.mark.slow
@given(nearly_regular())
def test_parts_can_be_exchanged(node: NodeTopology) -> None:
    """Nothing of the machine is different then."""
    order = [*range(len(node))]
    before = matrix(node, order)
    for block in all_blocks(node.blocks):
        assert matrix(node, exchanged(order, block)) == before


@pytest.mark.slow
@given(nearly_regular())
def test_each_gpu_is_in_one_block(node: NodeTopology) -> None:
    """And in one part of it."""
    assert sum(block.members for block in node.blocks) == (1 << len(node)) - 1
    for block in all_blocks(node.blocks):
        assert sum(part.members for part in block.parts) == block.members
