"""The best rule with at most two moves from one machine, for a pod that fits on neither of two with enough free GPUs together.

All pods that move leave the machine that the waiting pod gets. Each of them costs what its set is worth for the restart cost.
Redone work occupies no GPU: what a pod has yet to run stays as it was, since run times are exponential. A pod may be refused
where moves would cost more than they bring.

On one machine a pod fits wherever enough GPUs are free, so this is about two. A plan has two halves. What one machine sends
away, and what is left there, depends on that machine alone. What the best places on the other machine are worth depends on
what is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.optimum.process import DecisionProcess, Rule
from benchmarks.optimum.states import Indexes, Numbers, States

MOST_MOVES = 2

Bools: TypeAlias = npt.NDArray[np.bool_]
Sent: TypeAlias = tuple[int, ...]
"""Kinds of the pods that go to the other machine, rising."""
Costs: TypeAlias = Sequence[Numbers]
"""For each kind of pod what is lost by moves when one comes, by state of both machines."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What a machine can be after it has sent away some pods for one that waits, and has given that one its place."""

    sent: Sent
    states: Indexes
    costs: Numbers
    """The least, by state."""


class MovingProcess(DecisionProcess):
    """Two machines between which pods may move."""

    def __init__(self, states: States, rates: Sequence[float], restart_cost: float) -> None:
        """Take two machines; `restart_cost` is work that a moved pod does again, where a mean pod runs for 1."""
        super().__init__(states, 2, rates)
        self._departures = [
            [_departures(states, state, place, restart_cost) for state in range(len(states))]
            for place in range(len(rates))
        ]

    @cached_property
    def stuck(self) -> list[Bools]:
        """For each kind of pod the states of both machines in which it fits on neither of them."""
        stuck = []
        for moves in self.states.moves:
            full = np.array([not len(after) for after in moves])
            stuck.append(full[:, None] & full[None, :])
        return stuck

    def follow(self, values: Numbers) -> tuple[Rule, Costs]:
        """Return the rule that is best if states are worth this much, and what its moves cost."""
        rule, costs = [], []
        for place, stuck in enumerate(self.stuck):
            after, cost = self._greedy(values, place), np.zeros(self.shape)
            for here, there in np.argwhere(stuck):
                best = max(self._plans(values, place, int(here), int(there)), default=None)
                if best and best[0] > values[here, there]:
                    _, cost[here, there], after[here, there] = best
            rule.append([(1.0, after)])
            costs.append(cost)
        return rule, costs

    def cost(self, shares: Numbers, costs: Costs) -> float:
        """Return what moves cost on average over time."""
        return sum(rate * float((shares * cost).sum()) for rate, cost in zip(self.rates, costs, strict=True))

    def _best_of_both(self, values: Numbers, place: int) -> Numbers:
        best = super()._best_of_both(values, place)
        return np.where(self.stuck[place], np.maximum(values, self._by_moving(values, place)), best)

    def _by_moving(self, values: Numbers, place: int) -> Numbers:
        """Return the best value that moves lead to, minus infinity where there are none."""
        best = np.full(self.shape, -np.inf)
        arrivals = dict[Sent, Numbers]()
        for state, departures in enumerate(self._departures[place]):
            for departure in departures:
                if departure.sent not in arrivals:
                    arrivals[departure.sent] = np.ascontiguousarray(self._arrivals(values, departure.sent).T)
                worth = arrivals[departure.sent][departure.states] - departure.costs[:, None]
                np.maximum(best[state], worth.max(axis=0), out=best[state])
        both: Numbers = np.maximum(best, best.T)
        return both

    def _arrivals(self, values: Numbers, sent: Sent) -> Numbers:
        """Return the best value by state of the machine where these pods arrive, and of the other one."""
        for place in reversed(sent):
            values = self._best(values, place)
        return values

    def _plans(self, values: Numbers, place: int, here: int, there: int) -> Iterator[tuple[float, float, int]]:
        """Return value, cost and resulting state of both machines, the best for each set of pods that is sent away."""
        count = len(self.states)
        for first, at, opposite in ((True, here, there), (False, there, here)):
            for departure in self._departures[place][at]:
                for arrived in _placed(self.states, opposite, departure.sent):
                    worth = values[departure.states, arrived] - departure.costs
                    best = int(worth.argmax())
                    left = int(departure.states[best])
                    after = left * count + arrived if first else arrived * count + left
                    yield float(worth[best]), float(departure.costs[best]), after


def _departures(states: States, state: int, place: int, restart_cost: float) -> list[Departure]:
    if len(states.moves[place][state]):
        return []
    cheapest = dict[tuple[Sent, int], float]()
    for gone, left in _without(states, state):
        cost = restart_cost * float(states.worth[state] - states.worth[left])
        for after in states.moves[place][left]:
            for count in range(1, len(gone) + 1):
                for staying in {*combinations(gone, len(gone) - count)}:
                    sent = _minus(gone, staying)
                    for final in _placed(states, int(after), staying):
                        key = sent, final
                        cheapest[key] = min(cost, cheapest.get(key, np.inf))
    by_sent = dict[Sent, dict[int, float]]()
    for (sent, final), cost in cheapest.items():
        by_sent.setdefault(sent, {})[final] = cost
    return [
        Departure(sent, np.array([*finals], dtype=np.int32), np.array([*finals.values()]))
        for sent, finals in by_sent.items()
    ]


def _without(states: States, state: int) -> set[tuple[Sent, int]]:
    """Return all that is left when one pod or two are gone, with the kinds of those."""
    gone = set[tuple[Sent, int]]()
    last: set[tuple[Sent, int]] = {((), state)}
    for _ in range(MOST_MOVES):
        last = {
            (tuple(sorted((*kinds, _kind_between(states, before, int(after))))), int(after))
            for kinds, before in last
            for after in states.ends[before][0]
        }
        gone |= last
    return gone


def _kind_between(states: States, before: int, after: int) -> int:
    return int((states.pods[before] - states.pods[after]).argmax())


def _placed(states: States, state: int, kinds: Sent) -> set[int]:
    """Return where any places of these pods lead."""
    reached = {state}
    for place in kinds:
        reached = {int(after) for before in reached for after in states.moves[place][before]}
    return reached


def _minus(kinds: Sent, others: Sent) -> Sent:
    left = [*kinds]
    for kind in others:
        left.remove(kind)
    return tuple(left)
