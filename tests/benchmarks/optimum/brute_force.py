"""The same optimum in the plainest way: every pod on GPUs of its own, no states taken together, plain value iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from topology.node.model import NodeTopology
from topology.placement.topology_class import TopologyClass
from topology.value.score import Weights, worth

State = tuple[frozenset[frozenset[int]], ...]
"""For each machine the sets that its pods hold."""


def best_worth(node: NodeTopology, machines: int, rates: Mapping[int, float], steps: int) -> float:
    """Return the worth of the pods that run, on average over time, under the best rule."""
    topology_class, weights = TopologyClass(node), Weights()
    fastest = machines * len(node) + sum(rates.values())

    def earned(pod: frozenset[int]) -> float:
        mask = sum(1 << gpu for gpu in pod)
        return worth(len(pod), topology_class.predict(mask)[0] if len(pod) > 1 else None, weights)

    def beside(state: State, size: int) -> Iterator[tuple[State, frozenset[int]]]:
        for at, pods in enumerate(state):
            free = set(range(len(node))) - {gpu for pod in pods for gpu in pod}
            for chosen in combinations(sorted(free), size):
                pod = frozenset(chosen)
                yield (*state[:at], pods | {pod}, *state[at + 1 :]), pod

    empty: State = (frozenset(),) * machines
    moves: dict[State, dict[int, list[tuple[State, frozenset[int]]]]] = {}
    new = [empty]
    while new:
        state = new.pop()
        moves[state] = {size: [*beside(state, size)] for size in rates}
        new += [after for afters in moves[state].values() for after, _ in afters if after not in moves]
    values = dict.fromkeys(moves, 0.0)
    growth = 0.0
    for _ in range(steps):
        better = {}
        for state, afters in moves.items():
            grown = 0.0
            for size, rate in rates.items():
                if afters[size]:
                    grown += rate * (max(earned(pod) + values[after] for after, pod in afters[size]) - values[state])
            for at, pods in enumerate(state):
                for pod in pods:
                    grown += values[(*state[:at], pods - {pod}, *state[at + 1 :])] - values[state]
            better[state] = values[state] + grown / fastest
        growth = (better[empty] - values[empty]) * fastest
        values = better
    return growth
