"""What gputopo would gain on one's own cluster: figures as measured, words that claim no more, a page that is safe to open."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from benchmarks.cli import app
from benchmarks.placement.gain.answer import NAMES, OBSERVE, STOCK, GainMeasurement, Measure
from benchmarks.placement.gain.command import parts_of, what_was_cut
from benchmarks.placement.gain.drawing import allocation, bandwidth_spread, intervals
from benchmarks.placement.gain.subject import Subject
from benchmarks.placement.gain.words import RULE_OF_GPUS, all_figures, in_short
from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.page import to_html, to_text
from benchmarks.placement.rows import ResultRow, quantile_rows
from tests.benchmarks.placement.test_snapshot import node, pod
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.formats.catalog import machine

SVG = "{http://www.w3.org/2000/svg}"


def subject(name: str = "mine", wired: int = 4) -> Subject:
    """Return a cluster of 4 nodes and 32 GPUs."""
    return Subject(name, nodes=4, gpus=32, wired_nodes=wired, pods=5, pods_of_several=3)


def rows(policy: str, placed: tuple[float, ...], ratio: float | None = 0.5) -> list[ResultRow]:
    """Return what runs of a policy may have measured, one value of pods placed for each seed; a tenth of the GPUs stranded."""
    found = []
    for seed, count in enumerate(placed):
        values = {"pods_placed": count, "pods_arrived": 20.0, "fragmentation_pct": 10.0, "allocation_pct": 90.0}
        found += [ResultRow("now", policy, seed, metric, 100.0, value) for metric, value in values.items()]
        if ratio is not None:
            found.append(ResultRow("now", policy, seed, "bandwidth_ratio_mean", None, ratio))
            found += quantile_rows("now", policy, seed, "bandwidth_ratio", [ratio / 2, ratio])
    return found


def said(ours: tuple[float, ...], theirs: tuple[float, ...]) -> str:
    """Return what the page says of the pods that fit."""
    answer = GainMeasurement(subject(), rows(PRODUCT, ours) + rows(STOCK, theirs), len(ours))
    return next(line for part in in_short(answer) for line in part.split("\n") if "Pods that fit" in line)


@pytest.mark.parametrize(
    ("ours", "theirs", "ending"),
    [
        ((18, 19, 20), (10, 12, 11), "That is **8.0 ± 2.5 more**."),
        ((10, 12, 11), (18, 19, 20), "That is worse: **8.0 ± 2.5 fewer**."),
        ((18, 10, 12), (15, 12, 10), "No difference that 3 runs can tell (1.0 ± 6.6 more)."),
        ((18, 10), (18, 10), "The same in every run."),
        ((18, 10), (16, 8), "That is **2.0 more**, in every run."),
        ((18,), (16,), "One run: 2.0 more, and nothing tells how sure that is."),
    ],
)
def test_words_claim_no_more_than_the_runs_show(
    ours: tuple[float, ...], theirs: tuple[float, ...], ending: str
) -> None:
    """A difference within its interval is no gain, and a loss is called one."""
    assert said(ours, theirs).endswith(ending)


def test_gains_are_of_the_unit_that_people_count_in() -> None:
    """Percent of the best bandwidth, and GPUs of the cluster's: a tenth of 32."""
    answer = GainMeasurement(subject(), rows(PRODUCT, (18, 18), 0.75) + rows(STOCK, (18, 18)), 2)
    found = {measure: answer.gain(measure, PRODUCT, STOCK) for measure in Measure}
    assert [(gain.ours, gain.theirs) for gain in found.values() if gain] == [(75, 50), (18, 18), (3.2, 3.2)]
    assert answer.best_of_others(Measure.PODS) == STOCK


def test_of_stranded_gpus_fewer_are_better() -> None:
    """A policy that strands more is worse by that much."""
    worse = [ResultRow("now", PRODUCT, seed, "fragmentation_pct", 100.0, 20.0) for seed in (0, 1)]
    gain = GainMeasurement(subject(), worse + rows(STOCK, (1, 1)), 2).gain(Measure.STRANDED, PRODUCT, STOCK)
    assert gain is not None
    assert gain.better_by.mean == pytest.approx(-3.2)


@pytest.mark.parametrize("draw", [intervals, bandwidth_spread, allocation])
def test_a_picture_is_xml_with_a_mark_and_a_name_for_each_policy(draw: Callable[[GainMeasurement], str | None]) -> None:
    """Nothing is drawn for policies that did not run."""
    ran = [STOCK, "hived", OBSERVE, PRODUCT]
    answer = GainMeasurement(subject(), [row for policy in ran for row in rows(policy, (18, 19))], 2)
    tree = ET.fromstring(draw(answer) or "")
    labels = [text.text for text in tree.iter(f"{SVG}text")]
    assert tree.find(f"{SVG}title") is not None
    assert [name for name in NAMES.values() if name in labels] == [NAMES[policy] for policy in NAMES if policy in ran]
    series = [line for line in tree.iter(f"{SVG}polyline") if line.get("class") == "series"]
    points = [*tree.iter(f"{SVG}circle")]
    assert (len(series), len(points)) == ((0, 3 * len(ran)) if draw is intervals else (len(ran), 0))


def test_a_curve_goes_through_what_was_measured() -> None:
    """Half of the pods have a quarter of the best bandwidth or less: that is half way up, and at a quarter of the width."""
    spread = [row for row in rows(PRODUCT, (1,)) if row.metric != "bandwidth_ratio_quantile"]
    spread += [
        ResultRow("now", PRODUCT, 0, "bandwidth_ratio_quantile", x, value)
        for x, value in ((0, 0), (50, 0.25), (100, 1))
    ]
    tree = ET.fromstring(bandwidth_spread(GainMeasurement(subject(), spread, 1)) or "")
    (line,) = (each for each in tree.iter(f"{SVG}polyline") if each.get("class") == "series")
    drawn = [tuple(map(float, point.split(","))) for point in (line.get("points") or "").split()]
    assert drawn == [
        pytest.approx((tick(tree, "x", at), tick(tree, "y", up)), abs=0.2) for at, up in ((0, 0), (25, 50), (100, 100))
    ]


def tick(tree: ET.Element, axis: str, value: float) -> float:
    """Return where a value lies, by the labels of the axis at 0 and at 100."""
    anchor, beside = {"x": ("middle", 0.0), "y": ("end", 4.0)}[axis]
    texts = [text for text in tree.iter(f"{SVG}text") if text.get("text-anchor") == anchor]
    low, high = (
        next(float(text.get(axis, "")) for text in texts if text.text == said) - beside for said in ("0", "100")
    )
    return low + value / 100 * (high - low)


def test_without_wires_nothing_is_said_or_drawn_of_bandwidth() -> None:
    """The page says why, and what to do."""
    answer = GainMeasurement(subject(wired=0), rows(PRODUCT, (18, 18), None) + rows(STOCK, (17, 17), None), 2)
    assert bandwidth_spread(answer) is None
    text = to_text(parts_of(answer, ""))
    assert "Bandwidth between GPUs: not measured, the wires are not known." in text
    assert "Let the agents run first" in text
    assert Measure.BANDWIDTH.value not in intervals(answer)


def test_the_page_says_who_chooses_the_gpus() -> None:
    """Stock scheduling and mode observe have the same plugin and the same order; a reader need not guess that."""
    answer = GainMeasurement(subject(), [*rows(PRODUCT, (1.0, 2.0)), *rows(STOCK, (1.0, 2.0))], 2)
    assert RULE_OF_GPUS in all_figures(answer)
    assert "random order" in RULE_OF_GPUS


def test_a_quick_answer_says_what_was_cut() -> None:
    """First among what it does not say."""
    answer = GainMeasurement(subject(), rows(PRODUCT, (1, 2, 3)) + rows(STOCK, (1, 2, 3)), 3)
    text = to_text(parts_of(answer, what_was_cut(3)))
    assert "3 orders of arrival instead of 10, and without best fit, FGD, HiveD" in text.replace("\n  ", " ")
    assert "quick" not in to_text(parts_of(answer, ""))


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_hostile_names_are_text(name: str) -> None:
    """A file may be called anything; what it is called is shown, and does nothing."""
    page = to_html("t", parts_of(GainMeasurement(subject(name), rows(PRODUCT, (1, 2)) + rows(STOCK, (1, 2)), 2), ""))
    assert f"<code>{html.escape(name)}</code>" in page
    assert name not in page


def cluster(path: Path) -> Path:
    """Write three machines with NVLink and pods of one to four GPUs, as kubectl lists them."""
    wires = {keys.TOPOLOGY: encode_topology(machine("dgx-1v"))}
    items = [node(f"n{i}", 8, wires) for i in range(3)] + [pod(f"p{i}", size) for i, size in enumerate((1, 1, 2, 4))]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def compare(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["compare", *map(str, arguments), "--jobs", "1"])


def test_answers_for_a_snapshot_and_for_the_folder_made_of_it(tmp_path: Path) -> None:
    """The same words under another name; the page stands alone and knows the dark."""
    now = cluster(tmp_path / "now.json")
    first = compare(now, "--quick", "-o", tmp_path / "made" / "gain.html")
    assert (first.exit_code, first.stderr) == (0, "")
    assert "now.json: 3 nodes, 24 GPUs, 4 pods that ask for GPUs, 2 of them for two or more." in first.stdout
    CliRunner().invoke(app, ["snapshot", "--cluster", str(now), str(tmp_path / "mine")])
    assert compare(tmp_path / "mine", "--quick").stdout == first.stdout.replace("now.json", "mine")
    page = (tmp_path / "made" / "gain.html").read_text()
    assert page.count("<svg") == 3
    assert "prefers-color-scheme:dark" in page
    assert re.findall(r"<script|@import|url\(|src=|href=|https?://(?!www\.w3\.org/2000/svg)", page) == []


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """They could move the cursor."""
    shown = compare(cluster(tmp_path / "a\x1b[2Jb.json"), "--quick", "--seeds", "1").stdout
    assert "a?[2Jb.json" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "no snapshot of a cluster"), ('{"kind": "List", "items": []}', "no node has nvidia.com/gpu")],
)
def test_what_is_no_cluster_with_gpus_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """On stderr, by its name; so is what is not there."""
    (tmp_path / "now.json").write_text(text)
    for file, expected in (("now.json", reason), ("none.json", "No such file")):
        result = compare(tmp_path / file)
        assert (result.exit_code, result.stdout) == (2, "")
        assert file in result.stderr
        assert expected in result.stderr


def test_several_lists_of_pods_are_not_one_cluster(tmp_path: Path) -> None:
    """Which of them is meant nobody knows; the message names the command that takes them all."""
    for name in ("a", "b"):
        (tmp_path / f"x_pod_list_{name}.csv").write_text("cpu_milli,num_gpu,gpu_milli\n1,1,1000\n")
    result = compare(tmp_path)
    assert result.exit_code == 2
    assert "2 lists of pods" in result.stderr
