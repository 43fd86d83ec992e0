"""What is remembered of a cluster is bounded by what there is, on a replica that is asked and on one that never is."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pytest

from extender.cluster.candidates.shape_index import MOVES
from extender.cluster.ownership.fences import MAX_NAMES
from tests.extender.builders import claim, cluster, gpus, node
from tests.extender.turnover import Turnover, sizes
from topology.value.demand import Demand
from topology.value.fragmentation import PodKind

BOUNDS = {"Fences._gaps": MAX_NAMES, "ShapeIndex._moves": MOVES, "ShapeIndex._moves[]": 3 * MOVES}
"""What fills more slowly than this test, up to so many."""
LOOKS = 20
"""At the sizes of everything, while time goes on."""


@pytest.mark.slow
@pytest.mark.parametrize("is_asked", [True, False], ids=["leader", "standby"])
def test_nothing_grows_with_what_has_been(
    is_asked: bool, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """After a million pods, as after half of them; some memories fill and are halved again and again, so the largest counts."""
    pods = rounds(24_000, 1_000_000)
    turnover, halves = Turnover(is_asked=is_asked), [Counter[str](), Counter[str]()]
    for look in range(LOOKS):
        turnover.go_on(pods // LOOKS)
        gc.collect()
        halves[look // (LOOKS // 2)] |= sizes(turnover.state, turnover.attention, turnover.repairs)
    first, second = halves
    figure(f"{pods:,} pods, {'leader' if is_asked else 'standby'}: {first['bytes']:,} bytes, then {second['bytes']:,}")
    assert len(first) > 30 and first["Tombstones._tombstones"] == 10_000
    grown = {
        place: (first[place], size)
        for place, size in second.items()
        if size > BOUNDS.get(place, 1.05 * first[place] + 20)
    }
    assert grown == {}


def test_a_look_at_a_claim_that_is_no_more_leaves_nothing_behind() -> None:
    """Another replica released it while we asked; no change of the node would ever tell us to forget."""
    gpu = gpus("n1", 0)[0]
    state = cluster(node("n1", claims=(claim(gpu, "gone"),)))
    before = sizes(state)["LaterReports._all"]
    state.nodes.changed(node("n1", generation=2, version=2))
    state.set_baseline("n1", claim(gpu, "gone"))
    assert not state.has_baseline("n1", claim(gpu, "gone"))
    assert sizes(state)["LaterReports._all"] == before


def test_sizes_that_nobody_runs_with_are_forgotten() -> None:
    """They are added up whenever a pod comes, so each one that was ever bound would make all that follow dearer."""
    demand = Demand([(1, 1.0)])
    for gpus_asked in range(1, 1000):
        demand.saw(PodKind(gpus_asked))
        demand.started(PodKind(gpus_asked))
        demand.ended(PodKind(gpus_asked))
    assert sizes(demand)["Demand._running"] == 0
