"""What a set of free GPUs is worth to the pods still to come, and how that is weighed against the pod at hand.

The value is an expectation over the sizes that pods ask for: of each size, as many disjoint sets as a greedy search finds,
best first, each worth its GPUs times the utility of its bandwidth. It is a lower bound on the best division, it never depends
on anything but the topology class and the free mask, and a person can compute it by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from topology.bandwidth import Bandwidth
from topology.request import Communication

HALF_UTILITY_GB_PER_S = 20.0
"""Bandwidth at which a set is half as useful as one without any communication cost: about one PCIe gen 4 ring."""

_UTILITY_SHARE = {Communication.HEAVY: 1.0, Communication.LIGHT: 0.3, Communication.NONE: 0.0}


@dataclass(frozen=True, slots=True)
class Weights:
    """How this pod is weighed against those to come.

    `foresight` is the λ of the score: 0 looks at this pod alone. `demand` is the share of pods by GPUs asked for.
    """

    foresight: float = 0.5
    demand: tuple[tuple[int, float], ...] = ((1, 0.45), (2, 0.2), (4, 0.2), (8, 0.15))


def utility(bandwidth: Bandwidth | None) -> float:
    """Return 0..1, rising with bandwidth; 1 for a single GPU, which talks to nobody.

    >>> utility(None), utility(Bandwidth(18.0, 20.0, 22.0))
    (1.0, 0.5)
    """
    if bandwidth is None:
        return 1.0
    return bandwidth.point / (bandwidth.point + HALF_UTILITY_GB_PER_S)


def value(free: int, weights: Weights, best_set: Callable[[int, int], tuple[int, float] | None]) -> float:
    """Return the worth of the free GPUs (bit mask), in GPUs' worth of useful capacity.

    `best_set(free, size)` gives the best set of that size as (mask, utility), or `None` when fewer are free.
    """
    total = 0.0
    for size, share in weights.demand:
        left = free
        while (found := best_set(left, size)) is not None:
            mask, worth = found
            total += share * size * worth
            left &= ~mask
    return total


def score(
    gpus: int, bandwidth: Bandwidth | None, communication: Communication, value_lost: float, weights: Weights
) -> float:
    """Return how good a placement is, higher is better: this pod's utility less what the others lose.

    Pods that do not communicate, and those of one GPU, are placed by the loss alone.
    """
    own = _UTILITY_SHARE[communication] * gpus * utility(bandwidth) if gpus > 1 else 0.0
    return own - weights.foresight * value_lost
