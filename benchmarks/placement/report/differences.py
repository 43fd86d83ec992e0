"""How far policies are from one of them, seed by seed: one line for each workload, for questions that need many seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.placement.report.intervals import paired
from benchmarks.placement.report.sections import Column
from benchmarks.placement.report.tables import table
from benchmarks.placement.report.values import ScenarioValues
from benchmarks.placement.rows import ResultRow, mean

MISSING = "–"


def differences(rows: Iterable[ResultRow], against: str, metrics: Sequence[str]) -> str:
    """Return a table of how many percent of `against` the others have more, ± half a 95 % interval; of `against` the means.

    A cell has one figure for each metric, in their order; of metrics along x it is the last point.
    """
    rows = list(rows)
    values, last = ScenarioValues(rows), {row.metric: row.x for row in rows}
    columns = [Column(metric, metric, higher_is_better=False, x=last.get(metric)) for metric in metrics]
    others = dict.fromkeys(
        policy for workload in values.workloads for policy in values.policies(workload) if policy != against
    )
    lines = []
    for workload in values.workloads:
        ours = [values.of(workload, against, column) for column in columns]
        cells = [
            [_more(of_ours, values.of(workload, policy, column)) for of_ours, column in zip(ours, columns, strict=True)]
            for policy in others
        ]
        means = [f"{mean(found.values()):.4g}" if found else MISSING for found in ours]
        lines.append([f"{workload} ({max(map(len, ours), default=0)})", *(", ".join(cell) for cell in (means, *cells))])
    return table([f"{', '.join(metrics)} by workload (seeds)", against, *others], lines)


def _more(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    found = paired(theirs, ours)
    whole = mean(ours.values())
    if found is None or not whole:
        return MISSING
    return f"{100 * found.mean / whole:+.1f} ± {100 * found.half_width / abs(whole):.1f}"
