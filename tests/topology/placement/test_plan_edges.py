"""A plan at its limits: just enough bandwidth, the largest set that there is, and whether an eviction could help."""

from __future__ import annotations

import pytest

from topology.formats.catalog import machine
from topology.node.links import Affinity
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest

PAIRS = TopologyClass(machine("a100-pcie-8-pairs"))
PLAIN = TopologyClass(machine("t4-4"))


def test_just_as_much_bandwidth_as_asked_for_is_enough() -> None:
    """And a little more is not there."""
    found = decide(Situation(PAIRS, 0xFF), GpuRequest(2))
    assert isinstance(found, Placement) and found.bandwidth
    most = found.bandwidth.point
    assert isinstance(decide(Situation(PAIRS, 0xFF), GpuRequest(2, min_bandwidth_gb_per_s=most)), Placement)
    refused = decide(Situation(PAIRS, 0xFF), GpuRequest(2, min_bandwidth_gb_per_s=most * 1.01))
    assert isinstance(refused, Rejection)
    assert (refused.reason, refused.resolvable) == (Reason.BANDWIDTH, True)


@pytest.mark.parametrize(("size", "most"), [(3, "at most 2 of the"), (4, "at most 2 of the")])
def test_the_largest_set_that_is_near_enough_is_named(size: int, most: str) -> None:
    """Another set may come free, so removing pods could help."""
    message = f"{most} free GPUs share an NVLink ring, pod needs {size}"
    refused = decide(Situation(PAIRS, 0xFF), GpuRequest(size, required=Affinity.NVLINK))
    assert refused == Rejection(Reason.AFFINITY, message, resolvable=True)


def test_where_no_two_are_near_enough_that_is_said() -> None:
    """One GPU alone is near nobody."""
    refused = decide(Situation(PLAIN, 0b1111), GpuRequest(3, required=Affinity.NVLINK))
    message = "no two free GPUs share an NVLink ring, pod needs 3"
    assert refused == Rejection(Reason.AFFINITY, message, resolvable=True)


def test_a_set_that_is_as_near_as_required_is_taken() -> None:
    """And nearer ones as well."""
    for required in (Affinity.NVLINK, Affinity.NUMA_NODE):
        found = decide(Situation(PAIRS, 0b11110110), GpuRequest(2, required=required))
        assert isinstance(found, Placement)
        assert (found.affinity, sorted(found.gpus)) == (Affinity.NVLINK, [4, 5])
