"""The best rule that may move pods, held against the plainest computation, and the product against that rule."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.optimum.comparison import OPTIMUM, POOLED, Question, RuleOutcome
from benchmarks.optimum.moving import MovingProcess
from benchmarks.optimum.moving_comparison import TooManyMoves, compare_moves
from benchmarks.optimum.process import OPTIMUM_PRECISION
from benchmarks.optimum.whole_gpus import WholeGpus
from tests.benchmarks.optimum.brute_force import best_worth
from topology.formats.catalog import machine
from topology.placement.topology_class import TopologyClass
from topology.value.score import Weights

MIX = {1: 0.4, 2: 0.35, 4: 0.25}


def process_of(name: str, rates: dict[int, float], restart_cost: float) -> MovingProcess:
    states = WholeGpus(TopologyClass(machine(name)), [*rates], Weights()).states
    return MovingProcess(states, [*rates.values()], restart_cost)


def outcomes(name: str, minutes: int) -> dict[str, RuleOutcome]:
    question = Question(machine(name), 2, 0.82, MIX)
    return {outcome.rule: outcome for outcome in compare_moves(question, minutes, lambda _: None)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rates", "restart_cost"),
    [
        ("rtx-3090-2", {1: 1.3, 2: 0.6}, 0.0),
        ("rtx-3090-2", {1: 1.3, 2: 0.6}, 0.5),
        ("rtx-3090-2", {1: 1.3, 2: 0.6}, 3.0),
        ("rtx-a6000-4-pairs", {1: 1.4, 4: 0.6}, 0.1),
    ],
)
def test_it_is_what_brute_force_finds(name: str, rates: dict[int, float], restart_cost: float) -> None:
    """That enumerates every move of every pod, and shares no line with what it checks."""
    best = process_of(name, rates, restart_cost).optimum()
    expected = best_worth(machine(name), 2, rates, 120, restart_cost)
    assert best.least - 1e-4 <= expected <= best.most + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [0, 5, 30])
def test_the_product_with_moves_stays_within_one_percent_of_the_best(minutes: int) -> None:
    """The best rule, followed, earns what was promised; without moves the product is further below it."""
    by_rule = outcomes("hgx-h100", minutes)
    below = {name: outcome.below_optimum or 0.0 for name, outcome in by_rule.items() if name != POOLED}
    assert below.pop(OPTIMUM) == pytest.approx(0.0, abs=2 * OPTIMUM_PRECISION)
    still, moving = below.values()
    assert moving < 0.01 < still


@pytest.mark.slow
def test_free_moves_on_alike_gpus_lose_what_one_pooled_machine_loses() -> None:
    """Two moves can always bring four free GPUs together, where links are the same everywhere."""
    by_rule = outcomes("hgx-h100", 0)
    assert [*by_rule[OPTIMUM].lost.values()] == pytest.approx([*by_rule[POOLED].lost.values()], abs=2e-3)


def test_a_moved_pod_costs_what_its_set_is_worth_for_the_restart_cost() -> None:
    """One pod of one GPU on each machine of two GPUs: the pod of two gets room if the other one moves, at half its worth."""
    process = process_of("rtx-3090-2", {1: 1.3, 2: 0.6}, 0.5)
    states = process.states
    (one,) = (state for state in range(len(states)) if [*states.pods[state]] == [1, 0])
    (two,) = (state for state in range(len(states)) if [*states.pods[state]] == [0, 1])
    (full,) = (state for state in range(len(states)) if [*states.pods[state]] == [2, 0])
    rule, costs = process.follow(process.optimum().values)
    ((_, after),) = rule[1]
    assert {*np.unravel_index(after[one, one], process.shape)} == {two, full}
    assert costs[1][one, one] == pytest.approx(0.5 * states.worth[one])
    assert process.cost(np.full(process.shape, 1.0), costs) == pytest.approx(0.6 * 0.5 * states.worth[one])


def test_machines_with_too_many_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather no answer than hours of work."""
    monkeypatch.setattr("benchmarks.optimum.moving_comparison.MOST_ASKED", 10)
    with pytest.raises(TooManyMoves, match="at most 10 are possible"):
        outcomes("hgx-h100", 0)
