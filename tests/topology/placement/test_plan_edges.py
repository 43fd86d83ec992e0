"""A plan at its limits: just enough bandwidth, the largest set that there is, and whether an eviction could help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topology.formats.catalog import machine
from topology.node.links import Affinity, PciePath
from topology.node.model import Gpu, Nic, NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import Communication, GpuRequest, NicAffinity

PAIRS = TopologyClass(machine("a100-pcie-8-pairs"))
PLAIN = TopologyClass(machine("t4-4"))
CUBE = TopologyClass(machine("dgx-1v"))
NEAR_NIC = TopologyClass(
    replace(machine("hgx-h100"), nics=(Nic("mlx5_0", paths=((6, PciePath.PIX), (7, PciePath.PIX))),))
)
"""GPUs 6 and 7 share a NIC."""


def mask_of(found: object) -> int:
    assert isinstance(found, Placement)
    return sum(1 << position for position in found.gpus)


def no_ring(size: int, most: str, given: str = "") -> Rejection:
    """Return what is said where no so large set shares an NVLink ring."""
    message, remedy = f"no {size} free GPUs share an NVLink ring{given}", "wait or let it relax"
    return Rejection(Reason.AFFINITY, message, most, remedy, resolvable=True)


def test_just_as_much_bandwidth_as_asked_for_is_enough() -> None:
    """And a little more is not there."""
    found = decide(Situation(PAIRS, 0xFF), GpuRequest(2))
    assert isinstance(found, Placement) and found.bandwidth
    most = found.bandwidth.point
    assert isinstance(decide(Situation(PAIRS, 0xFF), GpuRequest(2, min_bandwidth_gb_per_s=most)), Placement)
    refused = decide(Situation(PAIRS, 0xFF), GpuRequest(2, min_bandwidth_gb_per_s=most * 1.01))
    assert isinstance(refused, Rejection)
    assert (refused.reason, refused.resolvable) == (Reason.BANDWIDTH, True)


@pytest.mark.parametrize(("size", "most"), [(3, "at most 2 do"), (4, "at most 2 do")])
def test_the_largest_set_that_is_near_enough_is_named(size: int, most: str) -> None:
    """Another set may come free, so removing pods could help."""
    refused = decide(Situation(PAIRS, 0xFF), GpuRequest(size, required=Affinity.NVLINK))
    assert refused == no_ring(size, most)


def test_where_no_two_are_near_enough_that_is_said() -> None:
    """One GPU alone is near nobody."""
    refused = decide(Situation(PLAIN, 0b1111), GpuRequest(3, required=Affinity.NVLINK))
    assert refused == no_ring(3, "no two do")


def test_a_set_that_is_as_near_as_required_is_taken() -> None:
    """And nearer ones as well."""
    for required in (Affinity.NVLINK, Affinity.NUMA_NODE):
        found = decide(Situation(PAIRS, 0b11110110), GpuRequest(2, required=required))
        assert isinstance(found, Placement)
        assert (found.affinity, sorted(found.gpus)) == (Affinity.NVLINK, [4, 5])


@pytest.mark.parametrize(
    ("size", "free", "most"),
    [
        (5, 0b11111, "at most 4 do"),
        (3, 0b110011, "at most 2 do"),
    ],
)
def test_no_smaller_and_no_larger_set_is_named(size: int, free: int, most: str) -> None:
    """Pairs of these GPUs share one too; four of 0, 1, 4 and 5 do, and nobody asked for four."""
    refused = decide(Situation(CUBE, free), GpuRequest(size, required=Affinity.NVLINK))
    assert refused == no_ring(size, most)


@pytest.mark.parametrize(("must", "most"), [(0b11, "at most 2 do"), (0b111, "no two do")])
def test_no_fewer_gpus_than_the_given_ones_are_named(must: int, most: str) -> None:
    """0 and 1 are bridged, and to nobody else: with 2 given as well nothing smaller is of use."""
    refused = decide(Situation(PAIRS, 0xFF, must_include=must), GpuRequest(4, required=Affinity.NVLINK))
    assert refused == no_ring(4, most, " with those given")


def test_a_node_without_gpus_says_so() -> None:
    """Removing pods gives it none."""
    refused = decide(Situation(TopologyClass(NodeTopology(())), 0), GpuRequest(1))
    assert refused == Rejection(Reason.NO_GPUS, "node has no GPUs", remedy="add nodes with GPUs")


@pytest.mark.parametrize("plugin_chooses", [False, True])
def test_a_pod_that_asks_for_no_gpu_gets_none_and_loses_nothing(plugin_chooses: bool) -> None:
    """On a full node as well."""
    for free in (0xFF, 0):
        assert decide(Situation(CUBE, free, plugin_chooses=plugin_chooses), GpuRequest(0)) == Placement(
            (), None, None, 0.0
        )


def test_a_single_gpu_has_neither_affinity_nor_bandwidth() -> None:
    """It talks to nobody."""
    found = decide(Situation(CUBE, 0xFF), GpuRequest(1))
    assert isinstance(found, Placement)
    assert (found.affinity, found.bandwidth) == (None, None)


def test_just_as_many_gpus_as_are_asked_for_are_enough() -> None:
    """All of the model, and all that have a NIC."""
    assert mask_of(decide(Situation(PLAIN, 0b1111), GpuRequest(4, models=("*t4*",)))) == 0b1111
    assert mask_of(decide(Situation(NEAR_NIC, 0xFF), GpuRequest(2, nic=NicAffinity.REQUIRED))) == 0b1100_0000


def test_one_gpu_with_a_nic_too_few_is_a_no_that_counts_them() -> None:
    """However many without one are free."""
    refused = decide(Situation(NEAR_NIC, 0xFF), GpuRequest(3, nic=NicAffinity.REQUIRED))
    message = "fewer than 3 of the node's GPUs have an RDMA NIC under their PCIe switch"
    remedy = "set nic-affinity to preferred"
    assert refused == Rejection(Reason.NIC, message, "2 have, pod needs 3", remedy)


@pytest.mark.parametrize("size", [1, 2])
def test_a_nic_that_nobody_wishes_for_decides_nothing(size: int) -> None:
    """The lowest positions are taken, as on a machine without NICs."""
    assert mask_of(decide(Situation(NEAR_NIC, 0xFF), GpuRequest(size))) == (1 << size) - 1


def test_without_a_floor_no_bandwidth_is_too_low() -> None:
    """One lane of the first generation: an eighth of a GB/s."""
    lame = NodeTopology(tuple(Gpu(i, f"u{i}", "x", pcie_generation=1, pcie_width=1) for i in range(2)))
    found = decide(Situation(TopologyClass(lame), 0b11), GpuRequest(2))
    assert isinstance(found, Placement) and found.bandwidth
    assert found.bandwidth.point < 1.0


def test_of_two_equal_sets_the_one_is_taken_that_others_miss_less() -> None:
    """Also where it comes second: GPU 1 is what is left of its pair, and 2 and 3 are one."""
    found = decide(Situation(PAIRS, 0b11100), GpuRequest(1, communication=Communication.NONE))
    assert mask_of(found) == 1 << 4
