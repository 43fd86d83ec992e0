"""The same optimum with shares in the plainest way, for machines of two GPUs that reach each other at any speed.

Every GPU is told from every other, no states are taken together, and plain value iteration finds the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

State = tuple[tuple[int, ...], ...]
"""For each GPU of all machines, two by two, what pods have of it: the GiB of shares in order, or a whole one's number."""
FREE: tuple[int, ...] = ()
ONE, BOTH = (-1,), (-2,)
"""A GPU that a pod has whole, and one of two that a pod has."""


class Kind(NamedTuple):
    """Pods that come: of whole GPUs, or of `gib` of one."""

    rate: float
    worth: float
    gpus: int
    gib: int = 0


def best_worth_of_shares(machines: int, share_gib: int, kinds: list[Kind], steps: int) -> float:
    """Return the worth of the pods that run, on average over time, under the best rule."""
    moves = _moves((FREE,) * 2 * machines, share_gib, kinds)
    fastest = max(len(ends) for _, ends in moves.values()) + sum(kind.rate for kind in kinds)
    values = dict.fromkeys(moves, 0.0)
    grown: dict[State, float] = {}
    for _ in range(steps):
        grown = {}
        for state, (afters, ends) in moves.items():
            grown[state] = sum(values[after] - values[state] for after in ends)
            for kind, found in zip(kinds, afters, strict=True):
                if found:
                    grown[state] += kind.rate * (kind.worth + max(map(values.__getitem__, found)) - values[state])
        values = {state: value + grown[state] / fastest for state, value in values.items()}
    return grown[(FREE,) * 2 * machines]


def _moves(empty: State, share_gib: int, kinds: list[Kind]) -> Mapping[State, tuple[list[list[State]], list[State]]]:
    """Return for each state where pods of each kind lead, and where pods that end do."""
    moves: dict[State, tuple[list[list[State]], list[State]]] = {}
    new = [empty]
    while new:
        state = new.pop()
        moves[state] = [[*_beside(state, share_gib, kind)] for kind in kinds], [*_ended(state)]
        new += [after for afters in moves[state][0] for after in afters if after not in moves]
    return moves


def _beside(state: State, share_gib: int, kind: Kind) -> Iterator[State]:
    if kind.gpus == 2:
        for at in range(0, len(state), 2):
            if state[at] == state[at + 1] == FREE:
                yield (*state[:at], BOTH, BOTH, *state[at + 2 :])
        return
    for at, held in enumerate(state):
        if kind.gib and held not in (ONE, BOTH) and sum(held) + kind.gib <= share_gib:
            yield (*state[:at], tuple(sorted((*held, kind.gib))), *state[at + 1 :])
        elif not kind.gib and held == FREE:
            yield (*state[:at], ONE, *state[at + 1 :])


def _ended(state: State) -> Iterator[State]:
    for at, held in enumerate(state):
        if held != BOTH:
            for place in range(len(held)):
                yield (*state[:at], held[:place] + held[place + 1 :], *state[at + 1 :])
        elif at % 2 == 0:
            yield (*state[:at], FREE, FREE, *state[at + 2 :])
