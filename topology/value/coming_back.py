"""When shared GPUs come back: later than those that one pod has, so the node is worth less until then.

The value of free GPUs counts with those in use, too: as if each had one pod, and were free when that ends. Of n pods that
share a GPU and run equally long only the last one gives it back. Any of them is the last in one of n cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

MANY_PODS = 3
"""So many and more on one GPU count alike: nodes that differ in nothing else are decided on together."""


def return_probability(pods: int) -> float:
    """Return how likely a pod that ends gives its GPU back, of so many that share it.

    >>> return_probability(1), return_probability(2)
    (1.0, 0.5)
    """
    return 1 / min(pods, MANY_PODS)


def sharing_penalty(value: Callable[[int], float], free: int, shared: Iterable[tuple[int, int]]) -> float:
    """Return what free GPUs (mask) are worth less because others come back later than their value takes for granted.

    Args:
        value: Of free GPUs, as a mask over positions.
        free: Those that are free.
        shared: Position of each that is shared, and how many pods have a share of it.

    """
    return sum(
        marginal_value(value, free, position) * (1 - return_probability(pods)) for position, pods in shared if pods > 1
    )


def marginal_value(value: Callable[[int], float], free: int, position: int) -> float:
    """Return what a GPU brings that comes back to the free ones; at least nothing.

    Where large pods come, one free GPU may be worth less than none: it says that the others have small pods.
    """
    return max(0.0, value(free | 1 << position) - value(free))
