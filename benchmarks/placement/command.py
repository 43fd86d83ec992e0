"""`gputopo-bench placement`: the experiments from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.placement.policies import check_policy
from benchmarks.placement.registry import SCENARIOS
from benchmarks.placement.rows import Row, mean
from benchmarks.placement.runner import Cell, run_cells

FIRST_SEED = 42
"""As in the published experiments of FGD."""


class BadExperiment(Exception):
    """The command line asks for something that there is not; the text says what there is."""


def run_placement(
    scenario: str, trace: Path | None, workloads: Sequence[str], policies: Sequence[str], seeds: int, jobs: int
) -> list[Row]:
    """Run an experiment; empty lists mean the scenario's own. Raises `BadExperiment`, `UnknownPolicy`, `BadTrace`."""
    if scenario not in SCENARIOS:
        raise BadExperiment(f"no scenario is called {scenario!r}; there are {', '.join(SCENARIOS)}")
    found = SCENARIOS[scenario](trace)
    unknown = [name for name in workloads if name not in found.workloads]
    if unknown:
        raise BadExperiment(f"{scenario} has no workload {unknown[0]!r}; it has {', '.join(found.workloads)}")
    for policy in policies:
        check_policy(policy)
    cells = [
        Cell(scenario, trace, workload, policy, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for workload in workloads or found.workloads
        for policy in policies or found.policies
    ]
    return run_cells(cells, jobs)


def summary(rows: Sequence[Row]) -> str:
    """Return a table: one line per workload and policy, means over the seeds; of metrics along x the last point."""
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for row in rows:
        values.setdefault((row.workload, row.policy), {}).setdefault(row.metric, {})[row.seed] = row.value
    lines = []
    for (workload, policy), metrics in values.items():
        cells = (f"{metric} {mean(by_seed.values()):.4g}" for metric, by_seed in metrics.items())
        lines.append(f"{workload:<28}{policy:<24}{'  '.join(cells)}")
    return "\n".join(lines)
