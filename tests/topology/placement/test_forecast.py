"""A node where NVIDIA's plugin chooses is worth what it will hand out, and fits only if whatever it hands out does."""

from __future__ import annotations

import pytest

from topology.formats.catalog import machine
from topology.node.links import Affinity
from topology.placement.forecast import forecast
from topology.placement.nvidia_best_effort import outcomes
from topology.placement.plan import plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import Communication, GpuRequest
from topology.value.score import score

CUBE = TopologyClass(machine("dgx-1v"))
PAIR = GpuRequest(2, preferred=Affinity.NVLINK)


def test_certain_choice_is_the_plan() -> None:
    """Four left, and all of them asked for."""
    request = GpuRequest(4, preferred=Affinity.NVLINK)
    assert forecast(CUBE, 0b1111, request) == plan(CUBE, 0b1111, request)


def test_expected_is_never_better_than_planned() -> None:
    """The plugin breaks islands where we would not."""
    for free in (0xFF, 0b11111100, 0b10111011, 0b11111000):
        likely, planned = forecast(CUBE, free, PAIR), plan(CUBE, free, PAIR)
        assert isinstance(likely, Placement)
        assert isinstance(planned, Placement)
        assert likely.score <= planned.score + 1e-9


def test_single_gpu_may_come_from_the_untouched_island() -> None:
    """We would take it from the broken one."""
    one = GpuRequest(1, communication=Communication.NONE)
    likely, planned = forecast(CUBE, 0b11111000, one), plan(CUBE, 0b11111000, one)
    assert isinstance(likely, Placement)
    assert isinstance(planned, Placement)
    assert likely.score < planned.score


def test_bandwidth_reaches_from_the_worst_to_the_best() -> None:
    """Of five free GPUs of the cube the plugin takes four that form an NVLink ring, or four that do not: equals to it."""
    found = forecast(CUBE, 0b11101100, GpuRequest(4))
    assert isinstance(found, Placement)
    assert found.bandwidth is not None
    assert found.bandwidth.low < 1 < 8 < found.bandwidth.point < 45 < found.bandwidth.high


def test_what_may_go_wrong_is_refused() -> None:
    """Five GPUs of the cube can form an NVLink ring, and the plugin never takes those."""
    demanding = GpuRequest(5, min_bandwidth_gb_per_s=40.0)
    assert isinstance(plan(CUBE, 0xFF, demanding), Placement)
    refused = forecast(CUBE, 0xFF, demanding)
    assert isinstance(refused, Rejection)
    message = "the device plugin may choose so that no 5 free GPUs are predicted to reach 40 GB/s"
    assert (refused.message, refused.remedy) == (message, "in mode enforce gputopo chooses")


def test_reason_of_a_full_node_is_the_usual_one() -> None:
    """Nothing to choose from."""
    found = forecast(CUBE, 0b1, PAIR)
    assert isinstance(found, Rejection)
    assert found.reason is Reason.TOO_FEW_FREE


def test_bandwidth_and_score_are_means_and_the_gpus_the_likeliest() -> None:
    """Weighed by how often the plugin hands out each set."""
    free, request = 0b11101100, GpuRequest(4, preferred=Affinity.NVLINK)
    likely = forecast(CUBE, free, request)
    chances = outcomes(CUBE.node, free, 4)
    each = [plan(CUBE, chance.gpus, request) for chance in chances]
    placed = [found for found in each if isinstance(found, Placement) and found.bandwidth]
    lost = [CUBE.value_lost(free, chance.gpus) for chance in chances]
    assert isinstance(likely, Placement) and likely.bandwidth
    assert len(placed) == len(chances) > 1
    assert sum(1 << position for position in likely.gpus) == chances[0].gpus
    mean = sum(
        chance.share * found.bandwidth.point for chance, found in zip(chances, placed, strict=True) if found.bandwidth
    )
    worth = sum(
        chance.share * score(request, found.bandwidth, found.affinity, loss, CUBE.weights)
        for chance, found, loss in zip(chances, placed, lost, strict=True)
    )
    assert likely.bandwidth.point == pytest.approx(mean)
    assert likely.score == pytest.approx(worth)


def test_a_single_gpu_has_no_bandwidth_to_forecast() -> None:
    """It talks to nobody."""
    likely = forecast(CUBE, 0b11111000, GpuRequest.plain(1))
    assert isinstance(likely, Placement)
    assert likely.bandwidth is None


def test_what_may_be_handed_out_is_planned_without_any_gpu_given() -> None:
    """GPU 0 is taken by others."""
    likely = forecast(CUBE, 0b10000, GpuRequest.plain(1))
    assert isinstance(likely, Placement)
    assert likely.gpus == (4,)
