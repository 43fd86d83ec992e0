"""What is worked out for a few GPUs holds for all that they stand for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tests.strategies.large import nearly_regular, nvswitch, pcie_tree
from tests.strategies.topologies import topologies
from topology.bandwidth.hops import DEFAULT_PEER_LEVEL
from topology.bandwidth.ties import Ties
from topology.node.alike import Block
from topology.node.model import NodeTopology


def one_by_one(node: NodeTopology) -> NodeTopology:
    """Return the same machine, of which no GPU stands for another one."""
    found = replace(node)
    found.__dict__["blocks"] = tuple(Block(1 << i) for i in range(len(node)))
    return found


def check_ties(node: NodeTopology) -> None:
    """Compare all ties, and the wires that several GPUs share, with those worked out for each pair."""
    quick, slow = (Ties(each, DEFAULT_PEER_LEVEL) for each in (node, one_by_one(node)))
    for row, other in zip(quick.between, slow.between, strict=True):
        assert [quick.kinds[kind] for kind in row] == [slow.kinds[kind] for kind in other]
    assert quick.uplinks() == slow.uplinks()


@pytest.mark.slow
@given(nearly_regular())
def test_groups_of_groups_are_compiled_as_pair_by_pair(node: NodeTopology) -> None:
    """Peer access, shared wires above switches, AMD and POWER9 included."""
    check_ties(node)


@pytest.mark.slow
@given(topologies(max_gpus=6))
def test_any_machine_is_compiled_as_pair_by_pair(node: NodeTopology) -> None:
    """Odd ones, of which little is alike."""
    check_ties(node)


@pytest.mark.slow
def test_seventy_two_gpus_are_compiled_as_pair_by_pair() -> None:
    """On an NVSwitch, and behind PCIe switches without peer access."""
    check_ties(nvswitch(72, numa_nodes=36))
    check_ties(pcie_tree(4, 9, 2, "NVIDIA GeForce RTX 4090"))


def test_a_regular_machine_has_few_ties() -> None:
    """One within a switch, one within a socket, one across, and that of a GPU with itself."""
    assert len(Ties(pcie_tree(4, 9, 2), DEFAULT_PEER_LEVEL).kinds) == 4
