"""What the report shows: for each scenario its metrics in words, which way is better, and how many seeds are enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from topology.value.score import Weights


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of a table."""

    metric: str
    title: str
    higher_is_better: bool
    digits: int = 3
    x: float | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of how one metric spreads over the jobs."""

    metric: str
    title: str


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One scenario of the report."""

    scenario: str
    title: str
    columns: tuple[Column, ...]
    seeds: int
    figure: str
    """`front`, `curve` or `dots`."""
    extra_policies: tuple[str, ...] = ()
    extra_workloads: tuple[str, ...] = ()
    """Those on which the extra policies run; empty: all."""
    spreads: tuple[Spread, ...] = ()


LAMBDAS = (0.0, 0.05, 0.5, 1.0)
"""λ beside the default: how much the pods to come count against the one at hand."""
ADMISSIONS = (0.3, 1.0)
"""What it is worth to serve a future pod at all.

Less than the default keeps cliques at the price of pods that find no place.
"""

_QUEUE = (
    Column("jct_h_mean", "JCT mean, h", higher_is_better=False),
    Column("jct_h_p95", "JCT p95, h", higher_is_better=False),
    Column("slow_down_p95", "slow-down p95", higher_is_better=False),
    Column("wait_h_mean", "wait mean, h", higher_is_better=False),
    Column("wait_for_shape_h_mean", "of it for shape, h", higher_is_better=False),
    Column("wait_large_h_mean", "wait of 8 GPUs or more, h", higher_is_better=False),
    Column("idle_while_wanted_pct", "GPUs idle while wanted, %", higher_is_better=False),
)
_LINKS = (
    Column("run_slow_down_mean", "run time over best", higher_is_better=False),
    Column("bandwidth_ratio_mean", "bandwidth over best", higher_is_better=True),
)
_WAIT = Spread("wait_h", "wait, h")
_BANDWIDTH = Spread("bandwidth_ratio", "predicted bandwidth over best")

SECTIONS: Final[tuple[ReportSection, ...]] = (
    ReportSection(
        "link-graph",
        "Ten nodes of one link graph, no queue",
        (
            Column("clique_ratio_4", "4-GPU jobs on a clique", higher_is_better=True),
            Column("lost_4", "4-GPU jobs lost", higher_is_better=False, digits=0),
            Column("lost_2", "2-GPU jobs lost", higher_is_better=False, digits=0),
            Column("lost_1", "1-GPU jobs lost", higher_is_better=False, digits=0),
            Column("bandwidth_ratio_4", "bandwidth over best, 4 GPUs", higher_is_better=True),
            Column("bandwidth_ratio_2", "bandwidth over best, 2 GPUs", higher_is_better=True),
        ),
        10,
        "front",
        (
            *(f"gputopo@{weight:g}" for weight in LAMBDAS),
            *(f"gputopo@{Weights().pods_to_come:g}:{admission:g}" for admission in ADMISSIONS),
        ),
        ("dgx-1v/load-0.82", "dgx-1v/load-1.01"),
    ),
    ReportSection(
        "inflation",
        "FGD's experiment: GPUs allocated and fragmented as ever more are asked for",
        (
            Column("allocation_pct", "allocated at 130 %, %", higher_is_better=True, digits=2, x=130.0),
            Column("allocation_pct", "allocated at 100 %, %", higher_is_better=True, digits=2, x=100.0),
            Column("fragmentation_pct", "fragments at 130 %, % of all", higher_is_better=False, digits=2, x=130.0),
            Column("fragmentation_ratio_pct", "fragments at 90 %, % of idle", higher_is_better=False, digits=1, x=90.0),
        ),
        10,
        "curve",
    ),
    ReportSection(
        "one-server",
        "MAPA's job mix before one server",
        (
            Column("speed_up_p75", "speed-up p75", higher_is_better=True),
            Column("speed_up_p25", "p25", higher_is_better=True),
            Column("speed_up_p0", "worst job", higher_is_better=True),
            Column("speed_up_mean", "mean", higher_is_better=True),
            Column("worst_slow_down", "worst slow-down", higher_is_better=False),
            Column("mean_bandwidth_gb_per_s", "bandwidth mean, GB/s", higher_is_better=True, digits=1),
            Column("mean_mapa_effective_gb_per_s", "by MAPA's own formula", higher_is_better=True, digits=1),
            Column("makespan_s", "makespan, s", higher_is_better=False, digits=0),
            Column("jobs_run", "jobs run", higher_is_better=True, digits=0),
        ),
        5,
        "dots",
    ),
    ReportSection(
        "philly",
        "Philly's jobs queue for cube-mesh machines",
        (*_QUEUE, *_LINKS),
        3,
        "dots",
        spreads=(_WAIT, _BANDWIDTH),
    ),
    ReportSection("mixed-fleet", "A mixed fleet", (*_QUEUE, *_LINKS), 5, "dots", spreads=(_WAIT, _BANDWIDTH)),
    ReportSection(
        "kalos",
        "Gangs on Kalos",
        (
            Column("domain_fit_ratio", "gangs on the fewest leaves", higher_is_better=True),
            Column("extra_leaves_mean", "leaves too many", higher_is_better=False),
            Column("wait_h_mean", "wait mean, h", higher_is_better=False),
            Column("wait_h_p95", "wait p95, h", higher_is_better=False),
        ),
        10,
        "dots",
        spreads=(_WAIT,),
    ),
    ReportSection(
        "pollux",
        "Pollux's workloads on measured placements",
        (*_QUEUE[:2], Column("run_slow_down_mean", "run time over best", higher_is_better=False)),
        5,
        "dots",
        spreads=(_WAIT,),
    ),
)
