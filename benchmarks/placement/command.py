"""`gputopo-bench placement`: the experiments from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.placement.policies import check_policy
from benchmarks.placement.registry import SCENARIOS, scenario_of
from benchmarks.placement.rows import Row, mean
from benchmarks.placement.runner import Cell, run_cells

FIRST_SEED = 42
"""As in the published experiments of FGD."""
COMPARED = ("jct_h_mean", "jct_h_p95", "allocation_pct")
"""In which metrics policies are compared seed by seed unless others are named."""


class BadExperiment(Exception):
    """The command line asks for something that there is not; the text says what there is."""


def run_placement(
    scenario: str | None,
    trace: Path | None,
    workloads: Sequence[str],
    policies: Sequence[str],
    seeds: int,
    jobs: int,
    against: str | None = None,
) -> list[Row]:
    """Run an experiment, of a trace alone the one that its files are for.

    Empty lists mean the scenario's own, and `against` runs as well. Raises `BadExperiment`, `UnknownPolicy`, `BadTrace`,
    `ProcessLost`.
    """
    if scenario is None:
        if trace is None:
            raise BadExperiment(f"name an experiment with --scenario ({', '.join(SCENARIOS)}) or a folder with --trace")
        scenario = scenario_of(trace)
    if scenario not in SCENARIOS:
        raise BadExperiment(f"no scenario is called {scenario!r}; there are {', '.join(SCENARIOS)}")
    found = SCENARIOS[scenario](trace)
    known = found.workloads
    unknown = [name for name in workloads if name not in known]
    if unknown:
        raise BadExperiment(f"{scenario} has no workload {unknown[0]!r}; it has {', '.join(known)}")
    asked = dict.fromkeys([*(policies or found.policies), *([against] if against else [])])
    for policy in asked:
        check_policy(policy)
    cells = [
        Cell(scenario, trace, workload, policy, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for workload in workloads or known
        for policy in asked
    ]
    return run_cells(cells, jobs)


def metrics_of(rows: Sequence[Row]) -> list[str]:
    """Return what was measured, which only the runs can tell."""
    return list(dict.fromkeys(row.metric for row in rows))


def summary(rows: Sequence[Row], metrics: Sequence[str]) -> str:
    """Return a table: one line per workload and policy, means over the seeds; of metrics along x the last point."""
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for row in rows:
        found = values.setdefault((row.workload, row.policy), {})
        if row.metric in metrics:
            found.setdefault(row.metric, {})[row.seed] = row.value
    lines = []
    for (workload, policy), by_metric in values.items():
        cells = (f"{metric} {mean(by_seed.values()):.4g}" for metric, by_seed in by_metric.items())
        lines.append(f"{workload:<28}{policy:<24}{'  '.join(cells)}")
    return "\n".join(lines)
