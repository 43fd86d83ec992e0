"""Queues are planned ahead while all goes wrong: no rule breaks, and in the calm no pod waits with a nomination of ours."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from tests.simulation.mix import steered
from tests.simulation.mutants import seams
from tests.simulation.mutants.steering import the_same_for_all
from tests.simulation.run import run
from tests.world.faults import Fault

pytestmark = pytest.mark.slow
SEEDS = range(16)
MISLED = range(100, 106)


def play(seeds: range) -> Counter[str]:
    """Run the seeds, and return what happened in them; none breaks a rule."""
    broken, counters = dict[int, tuple[str, ...]](), Counter[str]()
    for seed in seeds:
        result = run(seed, steered)
        counters += result.counters
        if result.violations:
            broken[seed] = result.violations
    assert broken == {}
    return counters


def test_no_seed_breaks_an_invariant_where_queues_are_planned_ahead(pytestconfig: pytest.Config) -> None:
    """Nominations are made, come true, are lost and are taken back, by several extenders that die in between.

    Others nominate, too: for nodes that are full or not there, with our mark and without.
    """
    counters = play(range(400) if pytestconfig.getoption("--long") else SEEDS)
    assert counters["nominated node: taken"] > 20
    assert counters["nominated node: refused"] > 0
    assert counters["reply: Nominate Done"] > 30
    assert counters["reply: Nominate Conflict"] > 0
    assert counters[f"fault: {Fault.POD_NOMINATED}"] > 10


def test_no_safety_rests_on_a_plan(pytestconfig: pytest.Config) -> None:
    """All pods are nominated for one node, and held the same GPUs: no GPU is given twice, and nobody waits for ever."""
    with patch(seams.PLAN_QUEUE, the_same_for_all):
        counters = play(range(100, 300) if pytestconfig.getoption("--long") else MISLED)
    assert counters["nominated node: refused"] > 0
    assert counters["reply: Nominate Done"] > 20
