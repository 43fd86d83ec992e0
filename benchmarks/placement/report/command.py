"""`gputopo-bench report`: run the scenarios, or read the rows of an earlier run, and write the page."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NotRequired, TypedDict

import msgspec

from benchmarks.placement.command import FIRST_SEED, Experiment
from benchmarks.placement.fidelity import published
from benchmarks.placement.quick import SEEDS as QUICK_SEEDS
from benchmarks.placement.quick import fewer_policies, what_was_cut
from benchmarks.placement.registry import SCENARIOS
from benchmarks.placement.report.figures import section_figure, shown_workloads, spread_figure
from benchmarks.placement.report.glance import figures
from benchmarks.placement.report.page import Part, ReportFigure, to_html, to_markdown
from benchmarks.placement.report.sections import SECTIONS, ReportSection
from benchmarks.placement.report.tables import fidelity_table, table, workload_table
from benchmarks.placement.report.values import ScenarioValues
from benchmarks.placement.rows import ResultRow
from benchmarks.placement.runner import Cell
from benchmarks.placement.traces.files import BadTrace, trace_folder

_ROW = tuple(field.name for field in fields(ResultRow))

TITLE = "gputopo beside its peers"
_HOW_TO_READ = (
    "Means over seeds; ± is half a 95 % interval. All policies of a table met the same jobs, so the last column compares seed "
    "by seed, in the metric that is named first. Bold is best. "
    "Under `stock-…` and `gputopo-observe` the device plugin chooses the GPUs, from the kubelet's random order; all others "
    "impose theirs. "
    "benchmarks/RESULTS.md says what each policy, scenario and metric is."
)


class _RowOfScenario(TypedDict):
    scenario: str
    workload: str
    policy: str
    seed: int
    metric: str
    x: float | None
    value: float


class _Document(TypedDict):
    """What `measure` returns; `cut` says of each scenario what a quick run left out."""

    rows: list[_RowOfScenario]
    missing: dict[str, str]
    cpu_seconds: dict[str, float]
    machine: dict[str, Any]
    cut: NotRequired[dict[str, str]]


class BadRows(Exception):
    """A file that no report has written; the text names it and the reason."""


def measure(
    scenarios: Sequence[str], seeds: int | None, jobs: int, machine: dict[str, Any], *, quick: bool = False
) -> dict[str, Any]:
    """Run the scenarios, all unless some are named, and return the document that `write_page` takes."""
    rows: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    cpu_seconds: dict[str, float] = {}
    cut: dict[str, str] = {}
    for section in SECTIONS:
        if section.scenario in (scenarios or [found.scenario for found in SECTIONS]):
            sys.stderr.write(f"{section.scenario}\n")
            before = _cpu_seconds()
            try:
                experiment = _experiment(section, seeds, quick=quick)
                found = experiment.run(jobs)
            except BadTrace as absent:
                sys.stderr.write(f"skipped: {absent}\n")
                missing[section.scenario] = str(absent)
                continue
            rows += [{"scenario": section.scenario, **asdict(row)} for row in found]
            cpu_seconds[section.scenario] = round(_cpu_seconds() - before, 1)
            if experiment.cut:
                cut[section.scenario] = experiment.cut
    kept = {"cut": cut} if cut else {}
    return {"rows": rows, "missing": missing, "cpu_seconds": cpu_seconds, "machine": machine, **kept}


def read_measured(path: Path) -> dict[str, Any]:
    """Return the document of an earlier run; raises `BadRows`."""
    try:
        return {**msgspec.json.decode(path.read_bytes(), type=_Document)}
    except OSError as failed:
        raise BadRows(f"{path}: {failed.strerror}") from failed
    except msgspec.DecodeError as broken:
        raise BadRows(f"{path}: not what the report writes: {broken}") from broken


def prepare(folder: Path) -> None:
    """Make the folder and try to write into it, before a run of half an hour rather than after it; raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        pass


def write_page(folder: Path, document: dict[str, Any]) -> None:
    """Write `report.html`, `report.md`, their figures, the picture for the README and `rows.json` into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.json").write_text(json.dumps(document), encoding="utf-8")
    rows = _by_scenario(document)
    parts = _parts(rows, document)
    for part in parts:
        if isinstance(part, ReportFigure):
            (folder / f"{part.name}.svg").write_text(part.svg, encoding="utf-8")
    (folder / "report.md").write_text(to_markdown(parts), encoding="utf-8")
    (folder / "report.html").write_text(to_html(TITLE, parts), encoding="utf-8")
    glance = figures(ScenarioValues(rows.get("link-graph", [])))
    if glance is not None:
        (folder / "peers.json").write_text(json.dumps(glance, indent=1) + "\n", encoding="utf-8")


def _by_scenario(document: dict[str, Any]) -> dict[str, list[ResultRow]]:
    rows: dict[str, list[ResultRow]] = {}
    for each in document["rows"]:
        rows.setdefault(each["scenario"], []).append(ResultRow(**{name: each[name] for name in _ROW}))
    return rows


def _cpu_seconds() -> float:
    """Return what this process and those that it has waited for have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _experiment(section: ReportSection, seeds: int | None, *, quick: bool) -> Experiment:
    found = SCENARIOS[section.scenario](None)
    workloads = shown_workloads(found.workloads, section)[:1] if quick else [*found.workloads]
    policies = fewer_policies(found.policies) if quick else [*found.policies]
    runs = seeds or (QUICK_SEEDS if quick else section.seeds)
    cells = tuple(
        Cell(section.scenario, None, workload, policy, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + runs)
        for workload in workloads
        for policy in (*policies, *(section.extra_policies if workload in section.extra_workloads else ()))
    )
    left_out = (
        [name for name in found.policies if name not in policies],
        [name for name in found.workloads if name not in workloads],
    )
    return Experiment(section.scenario, cells, what_was_cut(runs, section.seeds, *left_out) if quick else "")


def _parts(rows: dict[str, list[ResultRow]], document: dict[str, Any]) -> list[Part]:
    parts: list[Part] = [
        f"# {TITLE}",
        _HOW_TO_READ,
    ]
    for section in SECTIONS:
        if section.scenario in rows:
            parts += _section(
                section, ScenarioValues(rows[section.scenario]), document.get("cut", {}).get(section.scenario, "")
            )
        elif section.scenario in document["missing"]:
            parts += [f"## {section.title}", f"Not run: {document['missing'][section.scenario]}"]
    used = {f"CPU seconds, {name}": seconds for name, seconds in document["cpu_seconds"].items()}
    facts = [[name, str(value)] for name, value in (document["machine"] | used).items()]
    parts += ["## Measured with", table(["what", "value"], facts)]
    return parts


def _section(section: ReportSection, values: ScenarioValues, cut: str) -> list[Part]:
    parts: list[Part] = [f"## {section.title}", *([cut] if cut else [])]
    pictures = {section.scenario: section_figure(values, section)}
    pictures |= {
        f"{section.scenario}-{spread.metric}": spread_figure(values, section, spread) for spread in section.spreads
    }
    parts += [ReportFigure(name, drawn) for name, drawn in pictures.items() if drawn is not None]
    if section.scenario == "inflation":
        parts += _fidelity(values)
    for workload in values.workloads:
        parts += [f"### {workload}", workload_table(values, workload, section)]
    return parts


def _fidelity(values: ScenarioValues) -> list[Part]:
    try:
        said = published(trace_folder(None, "openb"))
    except BadTrace:
        return []
    return ["### Our baselines beside the figures their authors published", fidelity_table(values, said)]
