"""Tables in Markdown: one for each workload, a line for each policy, the best value in bold."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.placement.fidelity import PUBLISHED_NAMES
from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.intervals import interval, paired
from benchmarks.placement.report.sections import Column, ReportSection
from benchmarks.placement.report.values import ScenarioValues


def workload_table(values: ScenarioValues, workload: str, section: ReportSection) -> str:
    """Return the table of one workload; the last column is the product's paired lead in the first metric."""
    first = section.columns[0]
    policies = values.policies(workload)
    best = {column: _best(values, workload, policies, column) for column in section.columns}
    ours = values.of(workload, PRODUCT, first)
    head = ["policy", *(column.title for column in section.columns)]
    if ours:
        head.append(f"{PRODUCT} leads by")
    lines = []
    for policy in policies:
        cells = [policy, *(_cell(values, workload, policy, column, best[column]) for column in section.columns)]
        if ours:
            cells.append(_lead(ours, values.of(workload, policy, first), first) if policy != PRODUCT else "")
        lines.append(cells)
    return table(head, lines)


def fidelity_table(values: ScenarioValues, published: dict[tuple[str, str], dict[int, float]]) -> str:
    """Return our baselines beside the published figures: allocation at 130 %, means over seeds."""
    column = Column("allocation_pct", "", higher_is_better=True, x=130.0)
    lines = []
    for (workload, policy), theirs in sorted(published.items()):
        found = values.of(workload, policy, column) if workload in values.workloads else {}
        if found:
            ours, said = sum(found.values()) / len(found), sum(theirs.values()) / len(theirs)
            lines.append([workload, policy, f"{ours:.2f}", f"{said:.2f}", f"{ours - said:+.2f}"])
    order = [*PUBLISHED_NAMES.values()]
    lines.sort(key=lambda line: (line[0], order.index(line[1])))
    return table(["workload", "policy", "here, %", "published, %", "difference"], lines)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def _best(values: ScenarioValues, workload: str, policies: Sequence[str], column: Column) -> float | None:
    means = [sum(found.values()) / len(found) for policy in policies if (found := values.of(workload, policy, column))]
    if not means:
        return None
    return max(means) if column.higher_is_better else min(means)


def _cell(values: ScenarioValues, workload: str, policy: str, column: Column, best: float | None) -> str:
    found = values.of(workload, policy, column)
    if not found:
        return "–"
    measured = interval([found[seed] for seed in sorted(found)])
    text = measured.text(column.digits)
    return f"**{text}**" if best is not None and abs(measured.mean - best) < 0.5 * 10**-column.digits else text


def _lead(ours: dict[int, float], theirs: dict[int, float], column: Column) -> str:
    found = paired(ours, theirs) if column.higher_is_better else paired(theirs, ours)
    return found.text(column.digits) if found else "–"
