"""The best rule with at most two moves from one machine, and what policies do, with moves and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.optimum.comparison import OPTIMUM, Question, RuleOutcome, outcome_of, pooled
from benchmarks.optimum.moving import MovingProcess
from benchmarks.optimum.moving_rule import moving_rule_of, states_that_need_moves
from benchmarks.optimum.whole_gpus import WholeGpus
from benchmarks.placement.policies import PRODUCT
from topology.placement.topology_class import TopologyClass
from topology.value.score import Weights

MOST_ASKED = 200_000
"""States of both machines in which a policy is asked for moves, for all kinds of pods."""


class TooManyMoves(Exception):
    """There are more states than a policy can be asked about in half an hour."""


def policies_with_moves(minutes: int) -> tuple[str, ...]:
    """Return what is compared: the product without and with moves; both know the mix."""
    return f"{PRODUCT}-told", f"{PRODUCT}-moves-{minutes}m-told"


def compare_moves(question: Question, minutes: int, progress: Callable[[str], None]) -> Iterator[RuleOutcome]:
    """Find the best rule with at most two moves from one of two machines, then look at the product.

    A mean pod runs for an hour. A moved one does so many minutes of its work again, which occupies no GPU.
    Raises `TooManyStates`, `TooManyMoves`.
    """
    weights, restart_cost = Weights(), minutes / 60
    machine = WholeGpus(TopologyClass(question.node, weights), [*question.mix], weights)
    process = MovingProcess(machine.states, question.rates, restart_cost)
    need_moves = sum(int(states.sum()) for states in states_that_need_moves(machine, process, question.kinds))
    if need_moves > MOST_ASKED:
        raise TooManyMoves(
            f"pods need moves in {need_moves:,} states of two machines; at most {MOST_ASKED:,} are possible"
        )
    progress(f"{len(machine.states):,} states of one machine; looking for the best rule with moves")
    best = process.optimum()
    progress(f"following {OPTIMUM}")
    rule, costs = process.follow(best.values)
    shares = process.balance(rule)
    yield outcome_of(OPTIMUM, question, process, shares, best.most, process.cost(shares, costs))
    for name in policies_with_moves(minutes):
        progress(f"following {name}")
        rule, costs = moving_rule_of(name, machine, process, question.kinds, question.pods, restart_cost)
        of_policy = process.balance(rule, shares)
        yield outcome_of(name, question, process, of_policy, best.most, process.cost(of_policy, costs))
    yield pooled(question)
