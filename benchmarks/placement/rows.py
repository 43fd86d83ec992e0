"""One measured figure, in the form that the command line prints and the report reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isnan
from typing import Final

QUANTILE: Final = "_quantile"
"""How metrics end that say how values spread: what pictures are drawn from, too long for a line of text."""
PERCENTS: Final = range(0, 101, 5)


@dataclass(frozen=True, slots=True, order=True)
class ResultRow:
    """A value of one run."""

    workload: str
    policy: str
    seed: int
    metric: str
    x: float | None
    """Where along the run, e.g. percent of the GPUs requested so far; `None`: over the whole run."""
    value: float


def rows(workload: str, policy: str, seed: int, values: Mapping[str, float]) -> list[ResultRow]:
    """Return one row for each metric of a whole run; what could not be measured (NaN) has none."""
    return [
        ResultRow(workload, policy, seed, metric, None, value) for metric, value in values.items() if not isnan(value)
    ]


def quantile_rows(workload: str, policy: str, seed: int, metric: str, values: Sequence[float]) -> list[ResultRow]:
    """Return how the values spread, `METRIC_quantile`: at x, what x percent of them are at most; nothing of nothing."""
    found = sorted(values)
    points = PERCENTS if found else ()
    return [
        ResultRow(workload, policy, seed, f"{metric}{QUANTILE}", float(x), quantile(found, x / 100)) for x in points
    ]


def quantile(values: Iterable[float], part: float) -> float:
    """Return the value that this part of all is at most, between two values in proportion; NaN of nothing.

    >>> quantile([1.0, 2.0, 4.0], 0.5), quantile([1.0, 2.0], 0.75)
    (2.0, 1.75)
    """
    found = sorted(values)
    if not found:
        return float("nan")
    place = part * (len(found) - 1)
    low = int(place)
    high = min(low + 1, len(found) - 1)
    return found[low] + (place - low) * (found[high] - found[low])


def mean(values: Iterable[float]) -> float:
    """Return the mean, NaN of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else float("nan")


def mean_by_weight(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the mean of values that count as much as their weights say, NaN of nothing."""
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total else float("nan")


def quantile_by_weight(values: Sequence[float], weights: Sequence[float], part: float) -> float:
    """Return the least value that this part of all weight is at or below, NaN of nothing.

    >>> quantile_by_weight([1.0, 2.0, 4.0], [1, 1, 8], 0.2), quantile_by_weight([1.0, 2.0, 4.0], [1, 1, 8], 0.21)
    (2.0, 4.0)
    """
    found = sorted(zip(values, weights, strict=True))
    reached = [*accumulate(weight for _, weight in found)]
    return found[bisect_left(reached, part * reached[-1])][0] if found else float("nan")
