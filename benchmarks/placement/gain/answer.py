"""From rows to findings: each measure of each policy with its interval, and what the product gains, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final

from benchmarks.placement.gain.subject import Subject
from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.intervals import Interval, interval, paired
from benchmarks.placement.rows import ResultRow, mean

OBSERVE: Final = f"{PRODUCT}-observe"
STOCK: Final = "stock-least"
MOST_ALLOCATED: Final = "stock-most"
NAMES: Final[Mapping[str, str]] = {
    STOCK: "kube-scheduler as it comes",
    MOST_ALLOCATED: "kube-scheduler, fullest node first",
    "best-fit": "best fit",
    "fgd": "FGD",
    "hived": "HiveD",
    OBSERVE: "gputopo, mode observe",
    PRODUCT: "gputopo, mode enforce",
}
"""Policy → what people call it; in the order of the page."""
MOVES: Final = f"{PRODUCT}-moves"
"""Compared with the product alone, and on no table of policies."""
MOVED_MINUTES: Final = 5
"""Of work that a moved pod is taken to do again."""
QUICK: Final = (STOCK, MOST_ALLOCATED, OBSERVE, PRODUCT)
ASKED_PCT: Final = 100.0
"""Where along the run pods and GPUs are counted: as many GPUs are asked for as there are."""


class Measure(Enum):
    """What is compared."""

    BANDWIDTH = "bandwidth, % of the node's best"
    GB_PER_S = "bandwidth, GB/s"
    PODS = "pods that fit"
    STRANDED = "GPUs stranded"

    @property
    def more_is_better(self) -> bool:
        """Whether one wants much of it."""
        return self is not Measure.STRANDED


@dataclass(frozen=True, slots=True)
class Gain:
    """By how much the product is better in one measure; negative where it is worse."""

    measure: Measure
    ours: float
    theirs: float
    better_by: Interval

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out zero."""
        return abs(self.better_by.mean) > self.better_by.half_width


@dataclass(frozen=True, slots=True)
class MovesMeasured:
    """What it brings and costs that running pods move; means over the runs."""

    more_pods: Gain
    """In those that find a place, over no moves."""
    moved: float
    """Pods."""
    cost_gpu_h: float
    """If each of them does `MOVED_MINUTES` again."""


class GainMeasurement:
    """What the runs have shown."""

    def __init__(self, subject: Subject, rows: Sequence[ResultRow], seeds: int) -> None:
        self.subject = subject
        self.seeds = seeds
        self.policies = [name for name in NAMES if any(row.policy == name for row in rows)]
        self.fits_nowhere = max((int(row.value) for row in rows if row.metric == "fits_nowhere"), default=0)
        self.arrived = _mean_at(rows, "pods_arrived", ASKED_PCT)
        self._rows = rows
        self._values = {
            (measure, policy): _by_seed(rows, policy, measure, subject)
            for measure in Measure
            for policy in self.policies
        }

    def measured(self, measure: Measure, policy: str) -> Interval | None:
        """Return the mean over the seeds; `None` where it could not be measured."""
        found = self._values[measure, policy]
        return interval([*found.values()]) if found else None

    def gain(self, measure: Measure, ours: str, theirs: str) -> Gain | None:
        """Return how much better the one policy is than the other; `None` where it could not be measured."""
        mine, other = (self._values.get((measure, policy), {}) for policy in (ours, theirs))
        better = paired(mine, other) if measure.more_is_better else paired(other, mine)
        if better is None:
            return None
        return Gain(measure, interval([*mine.values()]).mean, interval([*other.values()]).mean, better)

    def moves(self) -> MovesMeasured | None:
        """Return what moving running pods would bring; `None` where it was not measured."""
        with_moves, without = (_by_seed(self._rows, policy, Measure.PODS, self.subject) for policy in (MOVES, PRODUCT))
        better = paired(with_moves, without)
        if better is None:
            return None
        more = Gain(Measure.PODS, mean(with_moves.values()), mean(without.values()), better)
        moved, gpus = (_mean_of(self._rows, MOVES, metric) for metric in ("moved", "moved_gpus"))
        return MovesMeasured(more, moved, gpus * MOVED_MINUTES / 60)

    def best_of_others(self, measure: Measure) -> str | None:
        """Return the policy that is best in this measure, the product left out; `None` where nothing was measured."""
        others = [name for name in self.policies if name not in (PRODUCT, OBSERVE) and self._values[measure, name]]
        sign = 1 if measure.more_is_better else -1
        return max(others, key=lambda name: sign * (self.measured(measure, name) or _NOTHING).mean, default=None)

    def along(self, metric: str, policy: str) -> list[tuple[float, float]]:
        """Return (x, mean over the seeds), rising."""
        found: dict[float, list[float]] = {}
        for row in self._rows:
            if (row.policy, row.metric) == (policy, metric) and row.x is not None:
                found.setdefault(row.x, []).append(row.value)
        return sorted((x, sum(values) / len(values)) for x, values in found.items())


_NOTHING = Interval(0.0, inf)


def _by_seed(rows: Sequence[ResultRow], policy: str, measure: Measure, subject: Subject) -> dict[int, float]:
    metric, x, factor = {
        Measure.BANDWIDTH: ("node_type_ratio_mean", None, 100.0),
        Measure.GB_PER_S: ("bandwidth_gb_per_s_mean", None, 1.0),
        Measure.PODS: ("pods_placed", ASKED_PCT, 1.0),
        Measure.STRANDED: ("fragmentation_pct", ASKED_PCT, subject.gpus / 100),
    }[measure]
    return {row.seed: factor * row.value for row in rows if (row.policy, row.metric, row.x) == (policy, metric, x)}


def _mean_of(rows: Sequence[ResultRow], policy: str, metric: str) -> float:
    return mean(row.value for row in rows if (row.policy, row.metric) == (policy, metric))


def _mean_at(rows: Sequence[ResultRow], metric: str, x: float) -> float:
    found = [row.value for row in rows if row.metric == metric and row.x == x]
    return sum(found) / len(found) if found else 0.0
