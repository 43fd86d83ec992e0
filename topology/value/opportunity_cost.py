"""What a free set of GPUs is worth, computed: the price of its GPUs among machines like it, for a mix of pods to come.

Each pod that comes goes to the machine where it gains most. That is its worth there, plus the value of what that machine
has left, minus the value of what it had. A machine earns what its offer is better than the best of the others, which is
what the cluster would lose without it. So the value is a fixed point: it decides where pods go. Where they go says how
free the machines are, and that says how good the others' offers are. It is found by turns, a few steps of each (value
iteration in a mean field). How many pods come is found with it: as many as leave a fixed small share of them without a
place, on whatever machine.

Two simplifications keep it to one number per free set. Machines of a fleet are alike. GPUs in use are taken to belong to
pods of the same mix, each on a best set of its size. These end independently after a mean time of 1. Deterministic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from statistics import fmean

from topology.value.symmetry import Counts, Symmetry

Table = dict[Counts, float]
"""Canonical counts of free GPUs → their value, relative to no free GPU."""

NODES = 10
"""Machines among which a pod finds its place; more make the offers more alike."""
SCARCITY = 0.02
"""Of the GPUs asked for, those that find no place: so many pods are taken to come as bring that about. Where nothing is
scarce, no set is worth more than another. Where most pods find no place, too much is given up for the few that do."""
MAX_SETS = 4_096
"""Free sets, without those that are alike, up to which a table is computed; a step over half as many takes 0.05 s."""

MAX_MOVES = 10_000
"""Ways from one free set to another up to which a table is computed: a step looks at each of them."""

_TURNS, _VALUE_STEPS, _SHARE_STEPS = 30, 10, 30
"""Values are the mean of the later turns, as prices swing for ever where large pods are rare. Ten times as many turns
change no value of the catalogue's nodes of eight by more than 1 % of the whole node's, their scale apart. That is for the
mix that is believed in before any pod is seen. It is 7 % where one pod in a hundred requests all eight (one turn alone: a
third)."""
_PATIENCE, _MOST_CHANGE = 20.0, 1.1
"""How gently the number of pods to come is changed; three times as fast, it swings for ever on machines of sixteen GPUs."""
_DIGITS = 7
"""Gains that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class SizeDemand:
    """One size of pod: how often it comes, and what a set is worth to it."""

    size: int
    share: float
    """Of all pods that fit the machine."""
    sets: Callable[[Counts], Sequence[tuple[Counts, float]]]
    """Free counts → the sets that such a pod would take, with their worth; empty when too few are free."""


def value_table(symmetry: Symmetry, offers: Sequence[SizeDemand]) -> Generator[None, None, Table | None]:
    """Compute the value of every free set, in steps: of some milliseconds on the machines of the catalogue.

    `None` when there are more than `MAX_SETS` or `MAX_MOVES`, or no pod ever comes.

    A generator, so that whoever has other things to do can do them between the steps; see `finish`. Linear in free sets times
    the sets that pods can take of each.
    """
    if not offers or (symmetry.least_sets > MAX_SETS and any(offer.size == 1 for offer in offers)):
        return None  # pods of one GPU lead to every set
    states = _States(symmetry, offers)
    yield from states.explore()
    if states.too_many:
        return None
    values = [sum(free) ** 2 / sum(symmetry.sizes) / NODES for free in states.free]
    shares = [1 / len(values)] * len(values)
    later: list[list[float]] = []
    for turn in range(_TURNS):
        prices = []
        for place in range(len(offers)):
            prices.append(_Price.of(states, values, shares, place))
            yield
        states.let_come(shares)
        yield
        flows = states.flows(values, prices)
        yield
        for _ in range(_VALUE_STEPS):
            values = states.improved(values, prices)
            yield
        fastest = max(sum(rate for _, rate in flow) for flow in flows)
        moves = [(state, after, rate) for state, flow in enumerate(flows) for after, rate in flow]
        for _ in range(_SHARE_STEPS):
            shares = _moved(shares, moves, fastest)
            yield
        if turn >= _TURNS // 2:
            later.append(values)
    values = [fmean(of_turns) for of_turns in zip(*later, strict=True)]
    empty = states.index.get(tuple(0 for _ in symmetry.sizes))
    least = min(values) if empty is None else values[empty]  # pods of four never fill six GPUs
    return {free: value - least for free, value in zip(states.free, values, strict=True)}


class _States:
    """The free sets of one machine, and how pods that come and go lead from one to another."""

    def __init__(self, symmetry: Symmetry, offers: Sequence[SizeDemand]) -> None:
        self.too_many = False
        self.free: list[Counts] = []
        self.index: dict[Counts, int] = {}
        self._symmetry = symmetry
        self._offers = offers
        size = sum(symmetry.sizes)
        per_pod = sum(offer.size * offer.share for offer in offers)
        self._asked = [offer.size * offer.share / per_pod for offer in offers]
        """Of all GPUs asked for, those that pods of each size ask for."""
        self.rates = [size * NODES / per_pod * offer.share for offer in offers]
        """Pods of each size that come to all machines, per mean time that a pod runs; at first they ask for all GPUs."""
        self._fastest = size + sum(self.rates)
        self._takes: list[list[list[tuple[int, float]]]] = []
        """For each state and offer: (state after, worth of the set)."""
        self._takers: list[list[tuple[int, list[tuple[int, float]]]]] = []
        """For each offer the states where it fits, with the same."""
        self._ends: list[list[tuple[int, float]]] = []
        """For each state: (state after, rate)."""

    def explore(self) -> Generator[None]:
        moves = 0
        self._enter(self._symmetry.sizes)
        for free in self.free:
            self._takes.append([self._taking(free, offer) for offer in self._offers])
            self._ends.append(self._ending(free))
            moves += len(self._ends[-1]) + sum(map(len, self._takes[-1]))
            if len(self.free) > MAX_SETS or moves > MAX_MOVES:
                self.too_many = True
                return
            yield
        for place in range(len(self._offers)):
            self._takers.append([(state, takes[place]) for state, takes in enumerate(self._takes) if takes[place]])

    def let_come(self, shares: Sequence[float]) -> None:
        """Let more pods come where too few find no place, and fewer where too many do; `shares` of machines in each state."""
        refused = 0.0
        for place, asked in enumerate(self._asked):
            too_full = sum(share for takes, share in zip(self._takes, shares, strict=True) if not takes[place])
            refused += asked * too_full**NODES
        change = (SCARCITY / max(refused, 1e-12)) ** (1 / _PATIENCE)
        change = min(max(change, 1 / _MOST_CHANGE), _MOST_CHANGE)
        self.rates = [rate * change for rate in self.rates]
        self._fastest = sum(self._symmetry.sizes) + sum(self.rates)

    def gains(self, values: Sequence[float], place: int) -> list[tuple[int, float]]:
        """Return the states where a size of pod fits, each with what the machine's best set for it gains."""
        found = []
        for state, takes in self._takers[place]:
            best = -inf
            for after, worth in takes:  # a plain loop, as most choices are of one or two sets
                together = worth + values[after]
                if together > best:
                    best = together
            found.append((state, best - values[state]))
        return found

    def flows(self, values: Sequence[float], prices: Sequence[_Price]) -> list[list[tuple[int, float]]]:
        """Return for each state where a machine goes from there, with the rates."""
        flows = [[*ends] for ends in self._ends]
        for place, price in enumerate(prices):
            for flow, takes, value in zip(flows, self._takes, values, strict=True):
                if takes[place]:
                    after, worth = max(takes[place], key=lambda take: take[1] + values[take[0]])
                    gain = worth + values[after] - value
                    flow.append((after, self.rates[place] * price.chance(gain)))
        return flows

    def improved(self, values: Sequence[float], prices: Sequence[_Price]) -> list[float]:
        """Return one step of value iteration; the first state, all free, stays at 0."""
        growths = []
        for value, ends in zip(values, self._ends, strict=True):
            growth = 0.0
            for after, rate in ends:
                growth += rate * (values[after] - value)
            growths.append(growth)
        for place, (rate, price) in enumerate(zip(self.rates, prices, strict=True)):
            for state, gain in self.gains(values, place):
                growths[state] += rate * price.surplus(gain)
        better = [value + growth / self._fastest for value, growth in zip(values, growths, strict=True)]
        return [value - better[0] for value in better]

    def _enter(self, free: Counts) -> int:
        free = self._symmetry.canonical(free)
        if free not in self.index:
            self.index[free] = len(self.free)
            self.free.append(free)
        return self.index[free]

    def _taking(self, free: Counts, offer: SizeDemand) -> list[tuple[int, float]]:
        best: dict[int, float] = {}
        for taken, worth in offer.sets(free):
            after = self._enter(tuple(a - b for a, b in zip(free, taken, strict=True)))
            best[after] = max(worth, best.get(after, worth))
        return [*best.items()]

    def _ending(self, free: Counts) -> list[tuple[int, float]]:
        used = tuple(a - b for a, b in zip(self._symmetry.sizes, free, strict=True))
        count = sum(used)
        fitting = [offer for offer in self._offers if offer.size <= count]
        pods = count / sum(offer.size * offer.share for offer in fitting) if fitting else 0.0
        rates: defaultdict[int, float] = defaultdict(float)
        for offer in fitting:
            sets = offer.sets(used)
            for given_back, _ in sets:
                after = self._enter(tuple(a + b for a, b in zip(free, given_back, strict=True)))
                rates[after] += pods * offer.share / len(sets)
        return [*rates.items()]


@dataclass(frozen=True, slots=True)
class _Price:
    """What one size of pod gains elsewhere: the best of the offers of the other machines, which may be none."""

    gains: list[float]
    """Of the best other offer, rising; 0 stands for a pod that finds no place."""
    cumulated: list[float]
    """Probability of such a gain or a smaller one."""
    weighted: list[float]
    """The same, each weighted by the gain."""
    chances: dict[float, float]
    """Gain of a machine's own offer → chance that it is taken, ties broken at random."""

    @classmethod
    def of(cls, states: _States, values: Sequence[float], shares: Sequence[float], place: int) -> _Price:
        """Look at all machines; `shares` says how many are in each state."""
        density: defaultdict[float, float] = defaultdict(float)
        for state, gain in states.gains(values, place):
            density[round(gain, _DIGITS)] += shares[state]
        below = max(0.0, 1.0 - sum(density.values()))
        best = [(0.0, below ** (NODES - 1))]
        chances = {}
        for gain, share in sorted(density.items()):
            upto = min(1.0, below + share)
            best.append((gain, upto ** (NODES - 1) - below ** (NODES - 1)))
            chances[gain] = (upto**NODES - below**NODES) / (NODES * share) if share > 1e-12 else upto ** (NODES - 1)
            below = upto
        best.sort()
        return cls(
            [gain for gain, _ in best],
            [*accumulate(probability for _, probability in best)],
            [*accumulate(gain * probability for gain, probability in best)],
            chances,
        )

    def chance(self, gain: float) -> float:
        """Return how likely an offer is taken that was among those looked at."""
        return self.chances[round(gain, _DIGITS)]

    def surplus(self, gain: float) -> float:
        """Return by how much an offer beats the best other one, on average; 0 where it does not."""
        place = bisect_right(self.gains, gain) - 1
        return gain * self.cumulated[place] - self.weighted[place] if place >= 0 else 0.0


def _moved(shares: Sequence[float], moves: Sequence[tuple[int, int, float]], fastest: float) -> list[float]:
    """Return the shares of machines in each state a moment later; a move goes from one state to another at a rate."""
    moved = [*shares]
    for state, after, rate in moves:
        part = shares[state] * rate / fastest
        moved[after] += part
        moved[state] -= part
    return moved
