"""`gputopo-bench report`: run the scenarios, or read the rows of an earlier run, and write the page."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.placement.command import FIRST_SEED
from benchmarks.placement.fidelity import published
from benchmarks.placement.registry import SCENARIOS
from benchmarks.placement.report.figures import section_figure
from benchmarks.placement.report.page import Figure, Part, to_html, to_markdown
from benchmarks.placement.report.sections import SECTIONS, Section
from benchmarks.placement.report.tables import fidelity_table, table, workload_table
from benchmarks.placement.report.values import Values
from benchmarks.placement.rows import Row
from benchmarks.placement.runner import Cell, run_cells
from benchmarks.placement.traces.files import BadTrace, trace_folder

TITLE = "gputopo beside its peers"
_HOW_TO_READ = (
    "Means over seeds; ± is half a 95 % interval. All policies of a table met the same jobs, so the last column compares seed "
    "by seed. Bold is best. docs/benchmarks.md says what each policy, scenario and metric is."
)


def write_report(
    folder: Path, scenarios: Sequence[str], seeds: int | None, jobs: int, machine: dict[str, Any]
) -> dict[str, Any]:
    """Run, write `report.html`, `report.md`, its figures and `rows.json` into the folder, and return the document of the last."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[Row]] = {}
    missing: dict[str, str] = {}
    for section in SECTIONS:
        if section.scenario in (scenarios or [found.scenario for found in SECTIONS]):
            sys.stderr.write(f"{section.scenario}\n")
            try:
                rows[section.scenario] = run_cells(_cells(section, seeds), jobs)
            except BadTrace as absent:
                missing[section.scenario] = str(absent)
    document = {
        "rows": [{"scenario": scenario, **asdict(row)} for scenario, found in rows.items() for row in found],
        "missing": missing,
        "machine": machine,
    }
    (folder / "rows.json").write_text(json.dumps(document), encoding="utf-8")
    parts = _parts(rows, missing, machine)
    for part in parts:
        if isinstance(part, Figure):
            (folder / f"{part.name}.svg").write_text(part.svg, encoding="utf-8")
    (folder / "report.md").write_text(to_markdown(parts), encoding="utf-8")
    (folder / "report.html").write_text(to_html(TITLE, parts), encoding="utf-8")
    return document


def _cells(section: Section, seeds: int | None) -> list[Cell]:
    found = SCENARIOS[section.scenario](None)
    return [
        Cell(section.scenario, None, workload, policy, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + (seeds or section.seeds))
        for workload in found.workloads
        for policy in (*found.policies, *(section.extra_policies if workload in section.extra_workloads else ()))
    ]


def _parts(rows: dict[str, list[Row]], missing: dict[str, str], machine: dict[str, Any]) -> list[Part]:
    parts: list[Part] = [
        f"# {TITLE}",
        _HOW_TO_READ,
    ]
    for section in SECTIONS:
        if section.scenario in rows:
            parts += _section(section, Values(rows[section.scenario]))
        elif section.scenario in missing:
            parts += [f"## {section.title}", f"Not run: {missing[section.scenario]}"]
    parts += ["## Measured with", table(["what", "value"], [[name, str(value)] for name, value in machine.items()])]
    return parts


def _section(section: Section, values: Values) -> list[Part]:
    parts: list[Part] = [f"## {section.title}"]
    drawn = section_figure(values, section)
    if drawn is not None:
        parts.append(Figure(section.scenario, drawn))
    if section.scenario == "inflation":
        parts += _fidelity(values)
    for workload in values.workloads:
        parts += [f"### {workload}", workload_table(values, workload, section)]
    return parts


def _fidelity(values: Values) -> list[Part]:
    try:
        said = published(trace_folder(None, "openb"))
    except BadTrace:
        return []
    return ["### Our baselines beside the figures their authors published", fidelity_table(values, said)]
