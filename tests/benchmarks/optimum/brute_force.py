"""The same optimum in the plainest way: every pod on GPUs of its own, no states taken together, plain value iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from topology.node.model import NodeTopology
from topology.placement.topology_class import TopologyClass
from topology.value.score import Weights, worth

Pod = frozenset[int]
State = tuple[frozenset[Pod], ...]
"""For each machine the sets that its pods hold."""


@dataclass(frozen=True)
class _Machines:
    topology_class: TopologyClass

    def earned(self, pod: Pod) -> float:
        mask = sum(1 << gpu for gpu in pod)
        return worth(len(pod), self.topology_class.predict(mask)[0] if len(pod) > 1 else None, Weights())

    def earned_in(self, state: State) -> float:
        return sum(self.earned(pod) for pods in state for pod in pods)

    def beside(self, state: State, size: int, machines: tuple[int, ...] = ()) -> Iterator[State]:
        """Return all places of one more pod, on any machine unless some are named."""
        for at in machines or range(len(state)):
            free = set(range(len(self.topology_class.node))) - {gpu for pod in state[at] for gpu in pod}
            for chosen in combinations(sorted(free), size):
                yield (*state[:at], state[at] | {frozenset(chosen)}, *state[at + 1 :])

    def after_moves(self, state: State, size: int) -> Iterator[tuple[State, float]]:
        """Return all that up to two pods of one machine can do for one more, and what these pods are worth."""
        for at, pods in enumerate(state):
            for gone in (some for count in (1, 2) for some in combinations(pods, count)):
                reached = [*self.beside((*state[:at], pods - {*gone}, *state[at + 1 :]), size, (at,))]
                for pod in gone:
                    reached = [again for after in reached for again in self.beside(after, len(pod))]
                moved = sum(self.earned(pod) for pod in gone)
                yield from ((after, moved) for after in reached)

    def choices(self, state: State, size: int, restart_cost: float | None) -> dict[State, float]:
        """Return what may be done with one more pod, and what that earns at once; more is not known of run times."""
        before = self.earned_in(state)
        fits = {after: self.earned_in(after) - before for after in self.beside(state, size)}
        if fits or restart_cost is None:
            return fits
        choices = {state: 0.0}
        for after, moved in self.after_moves(state, size):
            won = self.earned_in(after) - before - moved * restart_cost
            choices[after] = max(won, choices.get(after, won))
        return choices


def best_worth(
    node: NodeTopology, machines: int, rates: Mapping[int, float], steps: int, restart_cost: float | None = None
) -> float:
    """Return the worth of the pods that run, on average over time, under the best rule.

    With a restart cost up to two pods of one machine may move for one that fits nowhere, each to any place.
    """
    model = _Machines(TopologyClass(node))
    fastest = machines * len(node) + sum(rates.values())
    empty: State = (frozenset(),) * machines
    choices: dict[State, dict[int, dict[State, float]]] = {}
    new = [empty]
    while new:
        state = new.pop()
        if state not in choices:
            choices[state] = {size: model.choices(state, size, restart_cost) for size in rates}
            new += [after for afters in choices[state].values() for after in afters]
    values = dict.fromkeys(choices, 0.0)
    growth = 0.0
    for _ in range(steps):
        better = {}
        for state, afters in choices.items():
            grown = 0.0
            for size, rate in rates.items():
                if afters[size]:
                    grown += rate * (max(won + values[after] for after, won in afters[size].items()) - values[state])
            for at, pods in enumerate(state):
                for pod in pods:
                    grown += values[(*state[:at], pods - {pod}, *state[at + 1 :])] - values[state]
            better[state] = values[state] + grown / fastest
        growth = (better[empty] - values[empty]) * fastest
        values = better
    return growth
