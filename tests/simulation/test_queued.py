"""Pods and gangs wait in the queue while all goes wrong: no gate opens without claims, and no gang starts in parts."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.mix import owned, queued, torn
from tests.simulation.run import run

pytestmark = pytest.mark.slow
SEEDS = range(4)


def test_no_seed_breaks_an_invariant_where_pods_wait_in_the_queue(pytestconfig: pytest.Config) -> None:
    """Several extenders plan at once, without a leader, and die in between."""
    broken, counters = dict[int, tuple[str, ...]](), Counter[str]()
    for seed in range(400) if pytestconfig.getoption("--long") else SEEDS:
        result = run(seed, queued)
        counters += result.counters
        if result.violations:
            broken[seed] = result.violations
    assert broken == {}
    assert counters["gates: opened where nobody has spoiled a node"] > 5
    assert counters["reply: OpenGate Conflict"] > 0
    assert counters["gangs: whole, or waiting"] > 0


def test_gangs_that_lose_members_are_whole_again_or_wait(pytestconfig: pytest.Config) -> None:
    """Half gangs are ended, and no pods but those that the queue has started and a controller creates again."""
    results = [run(seed, torn) for seed in SEEDS]
    if pytestconfig.getoption("--long"):
        results += [run(seed, owned) for seed in range(400)]
    assert {violation for result in results for violation in result.violations} == set()
    assert sum(result.counters["evictions: granted"] for result in results) > 0
