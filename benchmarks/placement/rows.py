"""One measured figure, in the form that the command line prints and the report reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """A value of one run."""

    workload: str
    policy: str
    seed: int
    metric: str
    x: float | None
    """Where along the run, e.g. percent of the GPUs requested so far; `None`: over the whole run."""
    value: float


def rows(workload: str, policy: str, seed: int, values: Mapping[str, float]) -> list[Row]:
    """Return one row for each metric of a whole run."""
    return [Row(workload, policy, seed, metric, None, value) for metric, value in values.items()]


def mean(values: Iterable[float]) -> float:
    """Return the mean, NaN of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else float("nan")
