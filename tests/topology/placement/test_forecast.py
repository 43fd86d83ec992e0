"""A node where NVIDIA's plugin chooses is worth what it will hand out, and fits only if whatever it hands out does."""

from __future__ import annotations

from topology.formats.catalog import machine
from topology.node.links import Affinity
from topology.placement.forecast import forecast
from topology.placement.plan import plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import Communication, GpuRequest

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
    assert refused.message.startswith("the device plugin may choose so that best free set is predicted")


def test_reason_of_a_full_node_is_the_usual_one() -> None:
    """Nothing to choose from."""
    found = forecast(CUBE, 0b1, PAIR)
    assert isinstance(found, Rejection)
    assert found.reason is Reason.TOO_FEW_FREE
