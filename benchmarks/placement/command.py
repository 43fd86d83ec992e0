"""`gputopo-bench placement`: the experiments from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.placement.policies import check_policy
from benchmarks.placement.quick import SEEDS as QUICK_SEEDS
from benchmarks.placement.quick import fewer_policies, what_was_cut
from benchmarks.placement.registry import SCENARIOS, scenario_of
from benchmarks.placement.rows import ResultRow, mean
from benchmarks.placement.runner import Cell, run_cells

FIRST_SEED = 42
"""As in the published experiments of FGD, unless another is asked for."""
SEEDS = 10
"""Unless others are asked for."""
COMPARED = ("jct_h_mean", "jct_h_p95", "allocation_pct")
"""In which metrics policies are compared seed by seed unless others are named."""


class BadExperiment(Exception):
    """The command line asks for something that there is not; the text says what there is."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Cells to run, and what a quick run leaves out of them; empty where nothing is."""

    scenario: str
    cells: tuple[Cell, ...]
    cut: str = ""

    def run(self, jobs: int) -> list[ResultRow]:
        """Run them on so many processes; raises `BadTrace`, `ProcessLost`."""
        return run_cells(self.cells, jobs, self.scenario)


def experiment_of(
    scenario: str | None,
    trace: Path | None,
    workloads: Sequence[str],
    policies: Sequence[str],
    seeds: int | None,
    against: str | None = None,
    *,
    first_seed: int | None = None,
    quick: bool = False,
) -> Experiment:
    """Return an experiment, of a trace alone the one that its files are for.

    Empty lists mean the scenario's own, and `against` runs as well. `quick` cuts what nobody named. Raises `BadExperiment`,
    `UnknownPolicy`, `BadTrace`.
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
    chosen = workloads or (known[:1] if quick else known)
    asked = dict.fromkeys(policies or (fewer_policies(found.policies) if quick else found.policies))
    if against:
        asked[against] = None
    for policy in asked:
        check_policy(policy)
    runs = seeds or (QUICK_SEEDS if quick else SEEDS)
    first = FIRST_SEED if first_seed is None else first_seed
    cells = tuple(
        Cell(scenario, trace, workload, policy, seed)
        for seed in range(first, first + runs)
        for workload in chosen
        for policy in asked
    )
    if not quick:
        return Experiment(scenario, cells)
    left_out = [name for name in found.policies if name not in asked], [name for name in known if name not in chosen]
    return Experiment(scenario, cells, what_was_cut(runs, SEEDS, *left_out))


def metrics_of(rows: Sequence[ResultRow]) -> list[str]:
    """Return what was measured, which only the runs can tell."""
    return list(dict.fromkeys(row.metric for row in rows))


def summary(rows: Sequence[ResultRow], metrics: Sequence[str]) -> str:
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
