"""Prometheus histograms as programs show them, read again as statements about most of what they have counted."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Histogram:
    """Upper bound → how many were counted up to it; in the metric's own unit."""

    below: Mapping[float, float]

    @classmethod
    def of(cls, metrics: str, name: str) -> Self:
        """Read it from what a program shows; empty while it has counted nothing."""
        lines = re.finditer(rf'^{name}_bucket{{.*?le="([^"]+)".*?}} (\S+)$', metrics, re.MULTILINE)
        return cls({float(found[1]): float(found[2]) for found in lines})

    def since(self, before: Self) -> Self:
        """Return what was counted after another reading of it.

        >>> Histogram({1.0: 2.0, math.inf: 5.0}).since(Histogram({1.0: 2.0, math.inf: 2.0})).count
        3
        """
        return type(self)({bound: count - before.below.get(bound, 0.0) for bound, count in self.below.items()})

    @property
    def count(self) -> int:
        """How many were counted."""
        return int(self.below.get(math.inf, 0.0))

    def at_most(self, ratio: float) -> float:
        """Return the lowest bound below which this share of all lies.

        >>> Histogram({1.0: 50.0, 5.0: 99.0, math.inf: 100.0}).at_most(0.99)
        5.0
        """
        return min(bound for bound, count in self.below.items() if count >= ratio * self.count)
