"""A plan is searched for in small pieces that are counted, and weighs no more sets than it may."""

from __future__ import annotations

from itertools import pairwise

import pytest

from topology.effort import Effort, Search
from topology.node.links import Affinity
from topology.node.model import Gpu, NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.plan import CUT_STEPS, SETS_WEIGHED, planned
from topology.placement.topology_class import PREDICTION_STEPS, TopologyClass
from topology.placement.verdict import UNDECIDED, Placement
from topology.request.gpu_request import Communication, GpuRequest

UNLIKE = NodeTopology(tuple(Gpu(i, f"u{i}", "x", memory_bytes=2**34 + i) for i in range(8)))
"""Eight GPUs no two of which are alike: 28 pairs, and all are equally fast."""
PAIRS = 28
SILENT = GpuRequest(2, communication=Communication.NONE)
TOO_NEAR = GpuRequest(3, required=Affinity.NVLINK)


class Watched(TopologyClass):
    """Takes note of the free sets whose value somebody wants to know."""

    def __init__(self, node: NodeTopology) -> None:
        super().__init__(node)
        self.asked: set[int] = set()

    def valued(self, free: int) -> Search[float]:
        """Search for the value of the free GPUs."""
        self.asked.add(free)
        return super().valued(free)


def pieces(request: GpuRequest) -> list[int]:
    """Return how many steps each piece of the search for a plan takes."""
    compiled = TopologyClass(UNLIKE)
    ends = [0, *(compiled.meter.steps for _ in planned(compiled, 0xFF, request)), compiled.meter.steps]
    return [end - start for start, end in pairwise(ends)]


@pytest.mark.parametrize("request_", [SILENT, GpuRequest(2), TOO_NEAR])
def test_a_search_can_be_put_aside_after_each_set(request_: GpuRequest) -> None:
    """Looked at as a candidate, weighed against its equals, or tried to say how many would do."""
    assert max(pieces(request_)) < 3 * PREDICTION_STEPS


def test_each_set_that_is_weighed_costs_steps() -> None:
    """If they were not counted all would be weighed in one call; the last one's piece is larger, as it goes on to values."""
    assert pieces(SILENT).count(CUT_STEPS) == PAIRS - 1


def test_of_many_equal_sets_few_are_valued() -> None:
    """What each of these leaves, and the free GPUs themselves."""
    compiled = Watched(UNLIKE)
    assert isinstance(decide(Situation(compiled, 0xFF), SILENT), Placement)
    assert len(compiled.asked) == SETS_WEIGHED + 1


@pytest.mark.parametrize(("unknown", "plugin_chooses"), [(0, False), (1, False), (0, True)])
def test_a_search_that_may_not_end_in_this_call_is_undecided(unknown: int, plugin_chooses: bool) -> None:
    """Whichever way it goes, that is the answer, and no reason to believe that the node is full."""
    effort = Effort()
    situation = Situation(TopologyClass(UNLIKE, effort=effort), 0xFF, unknown=unknown, plugin_chooses=plugin_chooses)
    with effort.bounded(0):
        assert decide(situation, SILENT) is UNDECIDED
    for _ in effort.work():
        pass
    with effort.bounded():
        assert decide(situation, SILENT) is not UNDECIDED
