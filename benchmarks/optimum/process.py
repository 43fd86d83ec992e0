"""One or two machines alike as a Markov process: pods come at random, run for a random time, and one that fits is never refused.

Arrivals are Poisson, run times exponential with mean 1. The target is the worth of the pods that run, on average over
time. As all run equally long, that is what all served pods were worth, less nothing else. So a pod that is refused and a
set that is slow both count, in the product's own measure.

The best rule solves the equation of average reward, and what a rule does in the long run the balance of flows. Both are
found by Chebyshev's iteration. These processes are nearly reversible, so their rates of decay are nearly real. None is
above twice the greatest rate of leaving a state. The result is checked and does not rest on that. The least and the
greatest growth of any value are bounds of the optimum. Of a balance the flow that is left over is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.optimum.states import Indexes, Numbers, States

Rule = Sequence[Sequence[tuple[float | Numbers, Indexes]]]
"""For each kind of pod what may be done: by state of all machines its chance, and where it leads."""

OPTIMUM_PRECISION = 1e-5
"""Of the worth earned: how far apart the bounds of an optimum may be."""
BALANCE_PRECISION = 1e-6
"""Of all flow: how much may be left over."""
SLOWEST, FASTEST = 0.9, 2.0
"""Rates of decay that the iteration is made for; the latter over the greatest rate of leaving a state."""
MAX_STEPS = 1_000


class NotSettled(Exception):
    """An iteration did not come to its end."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best that a rule can earn, between two bounds, and a rule that does."""

    least: float
    most: float
    rule: Rule
    values: Numbers
    """Of the states of all machines, up to a constant."""


class DecisionProcess:
    """Machines with these states, and pods that come at these rates."""

    def __init__(self, states: States, machines: int, rates: Sequence[float]) -> None:
        """Take one machine or two of them."""
        self.states = states
        self.is_pair = machines == 2
        self.rates = rates
        self.shape = (len(states), len(states) if self.is_pair else 1)
        self._count = self._of_both(states.pods.sum(axis=1))
        self._fastest = float(self._count.max()) + sum(rates)

    def optimum(self) -> Optimum:
        """Return the best rule; of two machines by looking at both."""
        worth = self._of_both(self.states.worth)

        def growth(values: Numbers) -> Numbers:
            grown = worth + self._at_ends(values)
            for place, rate in enumerate(self.rates):
                best = self._best_of_both(values, place)
                grown += rate * np.where(np.isfinite(best), best - values, 0.0)
            return grown

        def is_settled(grown: Numbers) -> bool:
            return bool(grown.max() - grown.min() <= OPTIMUM_PRECISION * grown.max())

        values, grown = self._settled(growth, worth / 2, is_settled)
        rule = [[(1.0, self._greedy(values, place))] for place in range(len(self.rates))]
        return Optimum(float(grown.min()), float(grown.max()), rule, values)

    def balance(self, rule: Rule, start: Numbers | None = None) -> Numbers:
        """Return how much of the time all machines are in each state under a rule."""
        leaving = self._count + sum(self.rates)
        moves = [
            (rate * chance, after.ravel())
            for rate, choices in zip(self.rates, rule, strict=True)
            for chance, after in choices
        ]

        def flow(shares: Numbers) -> Numbers:
            left = -leaving * shares
            for rate, after in moves:
                left += np.bincount(after, weights=(rate * shares).ravel(), minlength=shares.size).reshape(self.shape)
            return left + self._from_ends(shares)

        if start is None:
            start = np.zeros(self.shape)
            start[0, 0] = 1.0
        enough = BALANCE_PRECISION * self._fastest
        shares, _ = self._settled(flow, start, lambda left: bool(np.abs(left).sum() <= enough))
        return shares

    def mean(self, shares: Numbers, of_state: Numbers) -> float:
        """Return the mean over time of what all machines hold of something."""
        mean = float(shares.sum(axis=1) @ of_state)
        return mean + float(shares.sum(axis=0) @ of_state) if self.is_pair else mean

    def _of_both(self, of_state: Numbers) -> Numbers:
        return of_state[:, None] + (of_state[None, :] if self.is_pair else np.zeros((1, 1)))

    def _settled(
        self, change: Callable[[Numbers], Numbers], start: Numbers, is_settled: Callable[[Numbers], bool]
    ) -> tuple[Numbers, Numbers]:
        middle, half = (FASTEST * self._fastest + SLOWEST) / 2, (FASTEST * self._fastest - SLOWEST) / 2
        found, step, stride = start, np.zeros_like(start), 0.0
        for count in range(MAX_STEPS):
            changed = change(found)
            if is_settled(changed):
                return found, changed
            if count == 0:
                step, stride = changed, 1 / middle
            else:
                kept = (half * stride) ** 2 / (2 if count == 1 else 4)
                stride = 1 / (middle - kept / stride)
                step = changed + kept * step
            found = found + stride * step
        raise NotSettled(f"not settled after {MAX_STEPS} steps")

    def _at_ends(self, values: Numbers) -> Numbers:
        """Return how fast values grow because pods end; of two machines alike, values must be."""
        grown = np.empty(self.shape)
        for state, (after, rates) in enumerate(self.states.ends):
            grown[state] = rates @ values[after]
        return (grown + grown.T if self.is_pair else grown) - self._count * values

    def _from_ends(self, shares: Numbers) -> Numbers:
        arrived = np.zeros(self.shape)
        for state, (after, rates) in enumerate(self.states.ends):
            arrived[after] += rates[:, None] * shares[state]
        if self.is_pair:
            other, turned = np.zeros(self.shape), np.ascontiguousarray(shares.T)
            for state, (after, rates) in enumerate(self.states.ends):
                other[after] += rates[:, None] * turned[state]
            arrived += other.T
        return arrived

    def _best_of_both(self, values: Numbers, place: int) -> Numbers:
        """Return the best value that such a pod leads to, minus infinity where it fits nowhere."""
        best = self._best(values, place)
        return np.maximum(best, best.T) if self.is_pair else best

    def _best(self, values: Numbers, place: int) -> Numbers:
        """Return the best value that such a pod on the first machine leads to."""
        best = np.full(self.shape, -np.inf)
        for state, after in enumerate(self.states.moves[place]):
            if len(after):
                values[after].max(axis=0, out=best[state])
        return best

    def _greedy(self, values: Numbers, place: int) -> Indexes:
        """Return where the best placement leads, the first machine among equals; a pod that does not fit changes nothing."""
        rows, columns = self.shape
        best, chosen = self._best(values, place), np.zeros(self.shape, dtype=np.int32)
        for state, after in enumerate(self.states.moves[place]):
            if len(after):
                chosen[state] = after[values[after].argmax(axis=0)]
        here = chosen * np.int32(columns) + np.arange(columns, dtype=np.int32)
        nowhere = np.arange(rows * columns, dtype=np.int32).reshape(self.shape)
        if not self.is_pair:
            return np.where(np.isfinite(best), here, nowhere)
        there = np.arange(rows, dtype=np.int32)[:, None] * np.int32(columns) + chosen.T
        return np.where(np.isfinite(np.maximum(best, best.T)), np.where(best >= best.T, here, there), nowhere)
