"""All GPUs in one machine where every set is as good as any: nothing is ever torn apart, and only their number counts.

What pods lose there nobody can do much about, so what a rule loses beyond it is the price of machines and links.
"""

from __future__ import annotations

from collections.abc import Sequence


def lost_when_pooled(gpus: int, sizes: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Return the share of pods of each size that find too few GPUs free, by Kaufman and Roberts' recursion.

    Args:
        gpus: All there are.
        sizes: How many a pod takes.
        rates: Pods of each size that come in the mean time that one runs.

    >>> lost_when_pooled(2, (1,), (1.0,))
    [0.2]

    """
    weights = [1.0]
    for taken in range(1, gpus + 1):
        weights.append(
            sum(size * rate * weights[taken - size] for size, rate in zip(sizes, rates, strict=True) if size <= taken)
            / taken
        )
    total = sum(weights)
    return [sum(weights[max(0, gpus - size + 1) :]) / total for size in sizes]
