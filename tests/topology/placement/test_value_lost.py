"""A placement tells what it costs the pods to come: the very figure that its score counts, times λ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topology.formats.catalog import machine
from topology.placement.decide import Situation, decide
from topology.placement.shares import Shares
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind
from topology.value.score import Weights

LAMBDA = 0.7
FREE = 0b11101111
TO_COME = DemandProfile([(PodKind(1, cpu_milli=8_000), 1.0)])


def placed(pods_to_come: float, request: GpuRequest, *, plugin_chooses: bool, scarce: bool) -> Placement:
    compiled = TopologyClass(machine("dgx-1v"), Weights(pods_to_come=pods_to_come))
    situation = Situation(compiled, FREE, plugin_chooses=plugin_chooses, shares=Shares((1000,) * 8, shareable=FREE))
    if scarce:
        situation = replace(situation, capacity=FreeCapacity.of_whole(8, FREE, 40_000), to_come=TO_COME)
    found = decide(situation, request)
    assert isinstance(found, Placement)
    return found


@pytest.mark.parametrize("plugin_chooses", [False, True])
@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_the_loss_that_is_told_is_the_one_that_the_score_counts(gpus: int, plugin_chooses: bool, scarce: bool) -> None:
    """Where we choose, where NVIDIA's plugin does, and where CPU is scarce besides."""
    request = replace(GpuRequest.plain(gpus), cpu_milli=16_000)
    alone = placed(0.0, request, plugin_chooses=plugin_chooses, scarce=scarce)
    weighed = placed(LAMBDA, request, plugin_chooses=plugin_chooses, scarce=scarce)
    assert weighed.value_lost
    assert alone.score - weighed.score == pytest.approx(LAMBDA * weighed.value_lost)


def test_a_share_tells_its_loss_too() -> None:
    """It is placed by that alone."""
    found = placed(LAMBDA, replace(GpuRequest.plain(0), memory_gib=(500,)), plugin_chooses=False, scarce=True)
    assert found.value_lost
    assert found.score == pytest.approx(-LAMBDA * found.value_lost)
