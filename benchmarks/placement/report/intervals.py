"""Means over seeds with 95 % intervals; differences are taken seed by seed, because all policies meet the same jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev

_STUDENT = (inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
            2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045)  # fmt: skip
"""Two-sided 95 % points of Student's t by degrees of freedom; beyond the table the last one, which is a little wide."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and how far from it the truth may be with 95 % confidence; infinite for one seed."""

    mean: float
    half_width: float

    def text(self, digits: int) -> str:
        """Return `0.951 ± 0.004`."""
        spread = f" ± {self.half_width:.{digits}f}" if self.half_width < inf else ""
        return f"{self.mean:.{digits}f}{spread}"


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of the values and its interval.

    >>> interval([1.0, 3.0]).text(1), interval([2.0]).text(1)
    ('2.0 ± 12.7', '2.0')
    """
    if len(values) < 2:
        return Interval(fmean(values), inf)
    student = _STUDENT[min(len(values) - 1, len(_STUDENT) - 1)]
    return Interval(fmean(values), student * stdev(values) / sqrt(len(values)))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return by how much ours exceeds theirs, over the seeds that both have; `None` when there is none."""
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    return interval(differences) if differences else None
