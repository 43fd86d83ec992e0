"""What GPUs are worth: to the pod at hand, and to the pods still to come.

One measure serves both: a pod that is served is worth its size, to a power, times a sum. The sum is what serving it at
all is worth plus how useful its bandwidth is. To the pod at hand, which is served anyway, a preferred affinity that is
met takes the place of being served. Of a free set, `topology.value.opportunity_cost` computes the value to pods to come;
where that is not known there is a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from topology.bandwidth.predict import Bandwidth
from topology.effort import Search
from topology.node.links import Affinity
from topology.request.gpu_request import Communication, GpuRequest

HALF_UTILITY_GB_PER_S = 20.0
"""Bandwidth at which a set is half as useful as one without any communication cost: about one PCIe gen 4 ring."""

SIZE_POWER = 2.0
"""A pod of 4 GPUs counts as much as 16 single ones.

It waits for a place that many of those can use, and they do not wait for its.
"""

_TURNOVER = 0.5
"""Brings the formula to the scale of computed values, where only some of the pods to come miss what is taken."""

_SHARE = {Communication.HEAVY: 1.0, Communication.LIGHT: 0.3, Communication.NONE: 0.0}


@dataclass(frozen=True, slots=True)
class Weights:
    """How this pod is weighed against those to come."""

    pods_to_come: float = 0.3
    """λ, in the configuration `foresight`: what the pods to come lose, against what this one gains. 0 looks at this pod alone.

    Between nodes only: on its node a pod always gets the best set. At 0.3 a pair that prefers NVLink takes it on a whole
    DGX-1V rather than PCIe on a broken one. That holds even where one pod in five requests eight, though not where half
    do. But it takes one link on a broken node rather than two. A pod that says `light` takes the PCIe. Between sets that
    are as good to the pod itself the loss decides at any λ above 0."""
    admission: float = 3.0
    """What it is worth to serve a pod at all, or to meet its preferred affinity, when perfect wiring adds 1. Low keeps islands
    whole at the price of pods that find no place, high the other way round; `benchmarks/RESULTS.md` has the curve."""
    demand: tuple[tuple[int, float], ...] = ((1, 0.45), (2, 0.2), (4, 0.2), (8, 0.15))
    """The pods to come: share by GPUs asked for, pods that run twice as long counted twice."""


def utility(bandwidth: Bandwidth | None) -> float:
    """Return 0..1, rising with bandwidth; 1 for a single GPU, which talks to nobody.

    >>> utility(None), utility(Bandwidth(18.0, 20.0, 22.0))
    (1.0, 0.5)
    """
    if bandwidth is None:
        return 1.0
    return bandwidth.point / (bandwidth.point + HALF_UTILITY_GB_PER_S)


def worth(gpus: int, bandwidth: Bandwidth | None, weights: Weights) -> float:
    """Return what it is worth to serve a pod to come with such a set."""
    return float(gpus**SIZE_POWER * (weights.admission + utility(bandwidth)))


def formula(
    free: int, weights: Weights, best_set: Callable[[int, int], Search[tuple[int, float] | None]]
) -> Search[float]:
    """Search for a value of the free GPUs (bit mask) that is quick to have: of each size as many disjoint sets as there are.

    `best_set(free, size)` finds a best set of that size as (mask, worth), or `None` when fewer are free.
    """
    total = 0.0
    for size, share in weights.demand:
        left = free
        while (found := (yield from best_set(left, size))) is not None:
            mask, gained = found
            total += _TURNOVER * share * gained
            left &= ~mask
    return total


def score(
    request: GpuRequest, bandwidth: Bandwidth | None, affinity: Affinity | None, value_lost: float, weights: Weights
) -> float:
    """Return how good a placement is, higher is better: what it is worth to this pod less what the others lose.

    A set that is not as near as the pod prefers serves it about as little as none. Pods that do not communicate, and those of
    one GPU, are placed by the loss alone.
    """
    own = 0.0
    if request.gpus > 1:
        own = utility(bandwidth) + weights.admission * request.is_content_with(affinity)
    return float(_SHARE[request.communication] * request.gpus**SIZE_POWER * own - weights.pods_to_come * value_lost)
