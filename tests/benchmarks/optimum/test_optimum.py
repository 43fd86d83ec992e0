"""The best rule on one and two machines, held against formulas and against the plainest computation there is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.optimum.comparison import OPTIMUM, POOLED, Question, RuleOutcome, compare
from benchmarks.optimum.pooled import lost_when_pooled
from benchmarks.optimum.process import OPTIMUM_PRECISION, DecisionProcess
from benchmarks.optimum.rules import pod_of, rule_of
from benchmarks.optimum.whole_gpus import TooManyStates, WholeGpus
from tests.benchmarks.optimum.brute_force import best_worth
from topology.formats.catalog import machine
from topology.placement.topology_class import TopologyClass
from topology.value.score import Weights


def outcomes(name: str, machines: int, load: float, mix: dict[int, float], *policies: str) -> dict[str, RuleOutcome]:
    question = Question(machine(name), machines, load, mix)
    return {found.rule: found for found in compare(question, policies, lambda _: None)}


def erlang_b(gpus: int, load: float) -> float:
    lost = 1.0
    for count in range(1, gpus + 1):
        lost = load * lost / (count + load * lost)
    return lost


@pytest.mark.parametrize("machines", [1, 2])
def test_pods_of_one_gpu_are_lost_as_erlang_says(machines: int) -> None:
    """With one size nothing is torn apart, so the best rule, any rule, and all GPUs in one machine lose alike."""
    found = outcomes("gb200-tray", machines, 0.8, {1: 1.0}, "gputopo-told", "stock-least")
    expected = erlang_b(4 * machines, 0.8 * 4 * machines)
    assert [each.lost[1] for each in found.values()] == pytest.approx([expected] * 4, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "machines", "rates"),
    [
        ("rtx-a6000-4-pairs", 1, {1: 1.1, 2: 0.8}),
        ("v100-sxm2-4", 1, {1: 0.9, 2: 0.7, 4: 0.2}),
        ("rtx-3090-2", 2, {1: 1.3, 2: 0.6}),
    ],
)
def test_it_is_what_brute_force_finds(name: str, machines: int, rates: dict[int, float]) -> None:
    """That tells every GPU from every other, keeps no states together, and shares no line with what it checks."""
    node, weights = machine(name), Weights()
    states = WholeGpus(TopologyClass(node, weights), [*rates], weights).states
    best = DecisionProcess(states, machines, [*rates.values()]).optimum()
    expected = best_worth(node, machines, rates, 120)
    assert best.least - 1e-4 <= expected <= best.most + 1e-4
    assert best.most - best.least <= OPTIMUM_PRECISION * best.most


@pytest.mark.slow
def test_no_rule_does_better_and_the_best_one_does_what_was_promised() -> None:
    """The optimum is a bound, and its own rule, followed, reaches it."""
    found = outcomes("l4-8", 2, 0.82, {1: 0.4, 2: 0.35, 4: 0.25}, "gputopo-told", "stock-most", "stock-least")
    below = {name: each.below_optimum for name, each in found.items() if name != POOLED}
    assert below[OPTIMUM] == pytest.approx(0.0, abs=2 * OPTIMUM_PRECISION)
    order = [below[name] or 0.0 for name in (OPTIMUM, "gputopo-told", "stock-most", "stock-least")]
    assert all(better < worse for better, worse in pairwise(order))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "machines"),
    [
        ("hgx-h100", 2),
        ("hgx-h100", 1),
        ("rtx-a6000-4-pairs", 2),
        ("a100-pcie-8-pairs", 1),
        pytest.param("dgx-1v", 1, marks=pytest.mark.slow),
    ],
)
def test_the_product_stays_within_one_percent_of_the_best(name: str, machines: int) -> None:
    """On links as on PCIe, on one machine and on two."""
    found = outcomes(name, machines, 0.82, {1: 0.4, 2: 0.35, 4: 0.25}, "gputopo-told")["gputopo-told"]
    assert found.below_optimum is not None and found.below_optimum < 0.01


def test_a_rule_that_leaves_gpus_to_the_device_plugin_counts_each_outcome_with_its_chance() -> None:
    """Beside a pod of one GPU the next one gets each of the three others alike: one of them is its neighbour by the bridge."""
    node = machine("rtx-a6000-4-pairs")
    states = WholeGpus(TopologyClass(node), (1,), Weights())
    (ones,) = rule_of("stock-most", states, 1, [pod_of(1)], [])
    assert sum(chance for chance, _ in ones) == pytest.approx(np.ones((len(states.states), 1)))
    (beside_one,) = states.states.moves[0][0]
    leads = {int(after[beside_one, 0]): float(np.asarray(chance)[beside_one, 0]) for chance, after in ones}
    assert leads == pytest.approx(
        {states.after(beside_one, 0, 0b0010): 1 / 3, states.after(beside_one, 0, 0b0100): 2 / 3}
    )


def test_pooled_gpus_lose_as_counting_says() -> None:
    """Two GPUs, pods of one and of two: five states in proportion 1, a, a²/2 and b, by hand."""
    one, two = 0.7, 0.4
    weights = [1.0, one, one**2 / 2 + two]
    lost = lost_when_pooled(2, (1, 2), (one, two))
    assert lost == pytest.approx([weights[2] / sum(weights), (weights[1] + weights[2]) / sum(weights)])


def test_a_machine_with_too_many_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather no answer than hours of work."""
    monkeypatch.setattr("benchmarks.optimum.whole_gpus.MAX_STATES", 10)
    with pytest.raises(TooManyStates, match="more than 10 states"):
        WholeGpus(TopologyClass(machine("l4-8")), (1, 2), Weights())
