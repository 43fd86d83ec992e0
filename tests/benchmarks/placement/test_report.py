"""The report: intervals that hold by hand, tables that name the best, pictures that do not change from run to run."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from math import inf
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.placement.report.command import BadRows, measure, read_measured, write_page
from benchmarks.placement.report.figures import section_figure, spread_figure
from benchmarks.placement.report.glance import BARS, POLICIES, WORKLOAD, draw, figures
from benchmarks.placement.report.intervals import Interval, interval, paired
from benchmarks.placement.report.page import ReportFigure, to_html, to_markdown
from benchmarks.placement.report.sections import SECTIONS, Column, ReportSection, Spread
from benchmarks.placement.report.tables import workload_table
from benchmarks.placement.report.values import ScenarioValues
from benchmarks.placement.rows import ResultRow, quantile_rows
from topology.value.score import Weights

COLUMN = Column("good", "goodness", higher_is_better=True, digits=1)
SECTION = ReportSection("x", "X", (COLUMN, COLUMN), 2, "dots")
ROWS = [
    ResultRow("w", policy, seed, "good", None, value)
    for policy, by_seed in {"random": (1.0, 3.0), "gputopo": (2.0, 5.0)}.items()
    for seed, value in enumerate(by_seed)
]


def test_an_interval_by_hand() -> None:
    """1, 2, 3: mean 2, deviation 1, Student's 4.303 for two degrees of freedom."""
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.303 / 3**0.5)
    assert interval([1.0]) == Interval(1.0, inf)


def test_differences_are_taken_seed_by_seed() -> None:
    """What all seeds have in common falls out."""
    found = paired({1: 11.0, 2: 21.0, 3: 7.0}, {1: 10.0, 2: 20.0})
    assert found == Interval(1.0, 0.0)


def test_a_table_marks_the_best_and_says_the_lead() -> None:
    """One line for each policy; the product's own has no lead over itself."""
    lines = workload_table(ScenarioValues(ROWS), "w", SECTION).split("\n")
    assert lines[2].startswith("| random | 2.0 ± ")
    assert lines[2].endswith("| 1.5 ± 6.4 |")
    assert "**3.5" in lines[3]


@pytest.mark.slow
def test_figures_are_the_same_bytes_again() -> None:
    """No date, no random names."""
    first, second = section_figure(ScenarioValues(ROWS), SECTION), section_figure(ScenarioValues(ROWS), SECTION)
    assert first is not None
    assert first == second
    assert "<svg" in first


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.scenario)
def test_every_section_draws_its_figure(section: ReportSection) -> None:
    """A front, a curve or dots, with the name of every policy and the product's weights left out of the names."""
    workload = (*section.extra_workloads, "w/measured")[0]
    rows = [
        ResultRow(workload, policy, seed, column.metric, column.x, 90.0 + seed)
        for policy in ("random", "gputopo", *section.extra_policies)
        for seed in (1, 2)
        for column in section.columns
    ]
    drawn = section_figure(ScenarioValues(rows), section)
    assert drawn is not None
    assert "random" in drawn
    assert "gputopo@" not in drawn


@pytest.mark.parametrize(
    ("section", "spread"),
    [(section, spread) for section in SECTIONS for spread in section.spreads],
    ids=lambda value: getattr(value, "scenario", None) or value.metric,
)
def test_every_spread_draws_a_line_for_each_policy(section: ReportSection, spread: Spread) -> None:
    """Of those with a name each has an entry, the others have one together; without rows there is no picture."""
    policies = ("stock-least", "hived", "fgd", "gputopo")
    rows = [row for policy in policies for row in quantile_rows("w", policy, 1, spread.metric, [0.1, len(policy)])]
    drawn = spread_figure(ScenarioValues(rows), section, spread)
    assert drawn is not None
    texts = ["".join(text.itertext()) for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert [texts.count(name) for name in (*policies, "each other policy", spread.title)] == [1, 0, 0, 1, 1, 1]
    lines = re.findall(r'<g id="line2d_\d+">\s*<path d="[^"]+" clip-path', drawn)
    assert len(lines) - grid_lines(drawn) == len(policies)
    assert spread_figure(ScenarioValues(ROWS), section, spread) is None


def grid_lines(drawn: str) -> int:
    """Count the lines behind a figure's curves."""
    return len(re.findall(r'clip-path="[^"]+" style="fill: none; stroke: #b0b0b0', drawn))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.scenario)
def test_every_figure_is_well_formed(section: ReportSection) -> None:
    """Whatever a workload and a policy are called: they come from files."""
    workload = section.extra_workloads[0] if section.extra_workloads else "<b>&/measured"
    columns = {(column.metric, column.x) for column in section.columns}
    rows = [ResultRow(workload, policy, 1, metric, x, 90.0) for policy in ("a<b&c", "gputopo") for metric, x in columns]
    tree = ET.fromstring(section_figure(ScenarioValues(rows), section) or "")
    assert workload in ["".join(text.itertext()) for text in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_a_quick_page_says_of_each_scenario_what_was_cut(tmp_path: Path) -> None:
    """Beside its figures, and when it is drawn once more."""
    rows = [{"scenario": "pollux", **asdict(row)} for row in ROWS]
    kept = {"missing": {}, "cpu_seconds": {}, "machine": {}, "cut": {"pollux": "Quick run: 2 seeds instead of 5."}}
    write_page(tmp_path / "a", {"rows": rows, **kept})
    write_page(tmp_path / "b", read_measured(tmp_path / "a" / "rows.json"))
    for name in "ab":
        assert "Quick run: 2 seeds instead of 5." in (tmp_path / name / "report.md").read_text()


@pytest.mark.slow
def test_the_curve_over_lambda_goes_through_the_default_in_order() -> None:
    """Whatever ran first; the default is not run once more under another name."""
    section = next(section for section in SECTIONS if section.figure == "front")
    assert f"gputopo@{Weights().pods_to_come:g}" not in section.extra_policies
    rows = [
        ResultRow(section.extra_workloads[0], policy, 1, column.metric, None, 90.0 + place)
        for place, policy in enumerate(("gputopo", *section.extra_policies))
        for column in section.columns
    ]
    assert section_figure(ScenarioValues(rows), section) == section_figure(ScenarioValues(rows[::-1]), section)


def test_the_page_needs_nothing_beside_itself() -> None:
    """Figures are inside, their parts renamed so that two may stand on one page; text is escaped."""
    page = to_html(
        "t", ["# A <b>", "| a | b |\n| --- | ---: |\n| 1 | **2** |", ReportFigure("f", '<svg id="p1"></svg>')]
    )
    assert "<h1>A &lt;b&gt;</h1>" in page
    assert "<td><b>2</b></td>" in page
    assert 'id="f-p1"' in page
    assert "http" not in page.replace("http-equiv", "")


def test_markdown_names_its_pictures() -> None:
    """They lie beside it."""
    assert to_markdown(["a", ReportFigure("f", "<svg/>")]) == "a\n\n![f](f.svg)\n"


def test_every_metric_of_the_report_has_one_title_a_section() -> None:
    """A column is found by its metric and x."""
    for section in SECTIONS:
        assert len({(column.metric, column.x) for column in section.columns}) == len(section.columns)


@pytest.mark.slow
def test_writes_a_page_with_the_raw_figures_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the traces their sections say so, and nothing is made up."""
    monkeypatch.setenv("GPUTOPO_SHARED", str(tmp_path))
    document = measure(["kalos", "pollux"], 1, 1, {"python": "3"})
    write_page(tmp_path / "out", document)
    assert document["rows"] == []
    assert set(document["missing"]) == {"kalos", "pollux"}
    assert "kalos\nskipped: " in capsys.readouterr().err
    assert "Not run:" in (tmp_path / "out" / "report.md").read_text()
    assert json.loads((tmp_path / "out" / "rows.json").read_text())["machine"] == {"python": "3"}


def test_the_page_of_an_earlier_run_is_the_same(tmp_path: Path) -> None:
    """Rows that were measured once can be drawn again."""
    rows = [{"scenario": "pollux", **asdict(row)} for row in ROWS]
    write_page(tmp_path / "a", {"rows": rows, "missing": {}, "cpu_seconds": {"pollux": 1.5}, "machine": {}})
    write_page(tmp_path / "b", read_measured(tmp_path / "a" / "rows.json"))
    first, second = ((tmp_path / name / "report.html").read_text() for name in "ab")
    assert first == second
    assert "CPU seconds, pollux" in first


_REST = '"missing": {}, "cpu_seconds": {}, "machine": {}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"rows": [{}]}',
        '{"rows": []}',
        f'{{"rows": [{json.dumps({"scenario": "kalos", **asdict(ROWS[0]), "value": "much"})}], {_REST}}}',
        '{"rows": [], "missing": [], "cpu_seconds": {}, "machine": []}',
    ],
)
def test_what_no_report_has_written_is_refused(tmp_path: Path, text: str) -> None:
    """By the name of the file."""
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(BadRows, match=r"rows\.json"):
        read_measured(tmp_path / "rows.json")


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_run(tmp_path: Path) -> None:
    """Half an hour of results would have nowhere to go."""
    (tmp_path / "taken").touch()
    result = CliRunner().invoke(app, ["report", "--folder", str(tmp_path / "taken"), "--scenarios", "link-graph"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{tmp_path / 'taken'}: File exists\n"


def test_the_picture_at_a_glance_is_what_the_rows_say() -> None:
    """One bar for each policy and metric; without all of them there is none."""
    rows = [
        ResultRow(WORKLOAD, policy, seed, metric, None, 0.5 + seed / 10)
        for policy in POLICIES
        for metric in BARS
        for seed in (1, 2)
    ]
    kept = figures(ScenarioValues(rows))
    assert kept is not None
    assert kept["policies"]["topo-aware"] == [0.65, 0.65]
    assert draw(kept).count("65.0 %") == 2 * len(POLICIES)
    assert figures(ScenarioValues(rows[2:])) is None
