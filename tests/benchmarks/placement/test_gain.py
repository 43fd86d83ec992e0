"""What gputopo would gain on one's own cluster: figures as measured, words that claim no more, a page that is safe to open."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from benchmarks.cli import app
from benchmarks.placement.gain.answer import (
    MOST_ALLOCATED,
    MOVES,
    NAMES,
    OBSERVE,
    STOCK,
    GainMeasurement,
    Measure,
)
from benchmarks.placement.gain.command import parts_of, what_was_cut
from benchmarks.placement.gain.drawing import allocation, bandwidth_spread, intervals
from benchmarks.placement.gain.subject import Subject, opened, subject_of
from benchmarks.placement.gain.words import (
    RULE_OF_GPUS,
    all_figures,
    in_short,
    verdict,
    what_moving_brings,
    what_to_install,
)
from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.page import to_html, to_text
from benchmarks.placement.rows import ResultRow, quantile_rows
from benchmarks.placement.rows import rows as rows_of
from benchmarks.placement.traces.snapshot import POD_LIST
from tests.benchmarks.placement.test_snapshot import labelled, node, pod
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.formats.catalog import machine

SVG = "{http://www.w3.org/2000/svg}"


def subject(name: str = "mine", wired: int = 4, *, is_uniform: bool = True) -> Subject:
    """Return a cluster of 4 nodes and 32 GPUs."""
    return Subject(name, nodes=4, gpus=32, wired_nodes=wired, pods=5, pods_of_several=3, is_uniform=is_uniform)


def rows(policy: str, placed: tuple[float, ...], ratio: float | None = 0.5) -> list[ResultRow]:
    """Return what runs of a policy may have measured, one value of pods placed for each seed; a tenth of the GPUs stranded."""
    found = []
    for seed, count in enumerate(placed):
        values = {"pods_placed": count, "pods_arrived": 20.0, "fragmentation_pct": 10.0, "allocation_pct": 90.0}
        found += [ResultRow("now", policy, seed, metric, 100.0, value) for metric, value in values.items()]
        if ratio is not None:
            found.append(ResultRow("now", policy, seed, "node_type_ratio_mean", None, ratio))
            found.append(ResultRow("now", policy, seed, "bandwidth_gb_per_s_mean", None, 100 * ratio))
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
    """Percent of the node's best bandwidth, GB/s, and GPUs of the cluster's: a tenth of 32."""
    answer = GainMeasurement(subject(), rows(PRODUCT, (18, 18), 0.75) + rows(STOCK, (18, 18)), 2)
    found = {measure: answer.gain(measure, PRODUCT, STOCK) for measure in Measure}
    assert [(gain.ours, gain.theirs) for gain in found.values() if gain] == [(75, 50), (75, 50), (18, 18), (3.2, 3.2)]
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
    assert (len(series), len(points)) == ((0, len(Measure) * len(ran)) if draw is intervals else (len(ran), 0))


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
    assert "Nothing is known of the gain in bandwidth: the wires are not known." in text
    assert "Let the agents run first, or name the node types with --node-type" in text.replace("\n  ", " ")
    assert Measure.BANDWIDTH.value not in intervals(answer)


def test_the_page_says_who_chooses_the_gpus() -> None:
    """Stock scheduling and mode observe have the same plugin and the same order; a reader need not guess that."""
    answer = GainMeasurement(subject(), [*rows(PRODUCT, (1.0, 2.0)), *rows(STOCK, (1.0, 2.0))], 2)
    assert RULE_OF_GPUS in all_figures(answer)
    assert "random order" in RULE_OF_GPUS


def short(ours: float, theirs: float, placed: tuple[float, ...] = (18, 18), *, is_uniform: bool = True) -> str:
    """Return the verdict on two runs with these parts of the best bandwidth, and as many pods with MostAllocated as placed."""
    runs = rows(PRODUCT, (18, 18), ours) + rows(STOCK, (17, 17), theirs) + rows(MOST_ALLOCATED, placed, theirs)
    return verdict(GainMeasurement(subject(is_uniform=is_uniform), runs, 2))


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (
            1.0,
            1.0,
            "Your fleet is uniform: any GPUs of a node are as fast as any others, so there is no gain in bandwidth.",
        ),
        (
            0.9,
            0.5,
            "Pods of several GPUs get 90.0 instead of 50.0 GB/s and 90.0 instead of 50.0 % of their node's best.",
        ),
        (
            0.5,
            0.9,
            "Pods of several GPUs get 50.0 instead of 90.0 GB/s and 50.0 instead of 90.0 % of their node's best.",
        ),
        (0.5, 0.5, "2 runs showed no certain gain in bandwidth."),
    ],
    ids=["uniform", "gain", "loss", "equal"],
)
def test_the_verdict_says_what_changes_in_bandwidth(ours: float, theirs: float, words: str) -> None:
    """In words, and a loss as well as a gain."""
    assert words in short(ours, theirs)


def test_a_fleet_is_called_uniform_only_if_its_links_are() -> None:
    """Pods may get the best of their node by chance, or because they are few."""
    words = short(1.0, 1.0, is_uniform=False)
    assert words.startswith(
        "No gain in bandwidth: pods like yours get the best of their node from kube-scheduler, too."
    )


def test_faster_nodes_are_a_gain_on_a_fleet_of_uniform_nodes() -> None:
    """In GB/s: each pod gets the best of its node, and that node is faster."""
    runs = rows(PRODUCT, (18, 18), 1.0) + rows(STOCK, (18, 18), 1.0)
    faster = [
        replace(row, value=300.0) if row.policy == PRODUCT and row.metric == "bandwidth_gb_per_s_mean" else row
        for row in runs
    ]
    assert verdict(GainMeasurement(subject(), faster, 2)).startswith(
        "Pods of several GPUs get 300.0 instead of 100.0 GB/s."
    )


@pytest.mark.parametrize(
    ("machines", "is_uniform"), [(("hgx-h100", "dgx-a100"), True), (("hgx-h100", "dgx-1v"), False)]
)
def test_nodes_are_uniform_if_any_two_gpus_of_each_are_joined_alike(
    tmp_path: Path, machines: tuple[str, ...], is_uniform: bool
) -> None:
    """Nodes may differ from each other."""
    items = [node(name, 8, {keys.TOPOLOGY: encode_topology(machine(name))}) for name in machines] + [pod("p", 2)]
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": items}))
    with opened(tmp_path / "now.json") as folder:
        assert subject_of(tmp_path / "now.json", folder).is_uniform is is_uniform


@pytest.mark.parametrize(
    ("placed", "words"),
    [
        ((18, 18), "2 runs showed no difference in packing from kube-scheduler's MostAllocated."),
        ((16, 16), "2.0 more pods fit than with kube-scheduler's MostAllocated."),
        ((19, 19), "1.0 fewer pods fit than with kube-scheduler's MostAllocated."),
    ],
)
def test_the_verdict_compares_packing_with_the_scheduler_that_packs(placed: tuple[float, ...], words: str) -> None:
    """It costs nothing to set, so it is the rival."""
    assert words in short(1.0, 1.0, placed)


def test_a_table_says_what_each_part_of_the_gain_needs() -> None:
    """Mode observe keeps NVIDIA's plugin; mode enforce replaces it."""
    runs = rows(PRODUCT, (18, 18), 0.75) + rows(OBSERVE, (18, 18), 0.5) + rows(STOCK, (17, 17), 0.5)
    table = what_to_install(GainMeasurement(subject(), runs, 2))[-1].split("\n")
    assert [line.split(" | ")[1:3] for line in table[2:]] == [
        ["0.0 points more", "0.0 GB/s more"],
        ["25.0 points more", "25.0 GB/s more"],
    ]


@pytest.mark.slow
def test_what_is_guessed_stands_on_the_page(tmp_path: Path) -> None:
    """With the option that names another node type."""
    items = [labelled(f"n{i}", 8, "Tesla-V100-SXM2-32GB") for i in range(2)] + [pod("p", 2)]
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": items}))
    guessed = compare(tmp_path / "now.json", "--quick").stdout.replace("\n  ", " ")
    assert "2 nodes with 8 × Tesla-V100-SXM2-32GB count as dgx-1v: a guess from product and number." in guessed
    given = compare(tmp_path / "now.json", "--quick", "--node-type", "Tesla*=hgx-h100").stdout.replace("\n  ", " ")
    assert "count as hgx-h100: as given." in given
    assert "Your fleet is uniform" in given


@pytest.mark.slow
def test_nodes_without_known_links_are_named_with_the_option_for_them(tmp_path: Path) -> None:
    """Ready to paste: the product, and what a node type may be."""
    items = [labelled("n0", 8, "Tesla-V100-SXM2-32GB"), labelled("n1", 4, "NVIDIA-A100-PCIE-40GB"), pod("p", 2)]
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": items}))
    text = compare(tmp_path / "now.json", "--quick").stdout.replace("\n  ", " ")
    assert "No NVLink is assumed on 1 node with 4 × NVIDIA-A100-PCIE-40GB:" in text
    assert "--node-type 'NVIDIA-A100-PCIE-40GB=NODE_TYPE'" in text
    assert text.count("No NVLink is assumed") == 1


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


@pytest.mark.slow
def test_answers_for_a_snapshot_and_for_the_folder_made_of_it(tmp_path: Path) -> None:
    """The same words under another name; the page stands alone and knows the dark."""
    now = cluster(tmp_path / "now.json")
    first = compare(now, "--quick")
    assert (first.exit_code, first.stderr) == (0, "")
    assert "now.json: 3 nodes, 24 GPUs, 4 pods that ask for GPUs, 2 of them for two or more." in first.stdout
    CliRunner().invoke(app, ["snapshot", "--cluster", str(now), str(tmp_path / "mine")])
    assert compare(tmp_path / "mine", "--quick").stdout == first.stdout.replace("now.json", "mine")
    page = compare(now, "--quick", "-o", "html").stdout
    assert page.count("<svg") == 3
    assert "prefers-color-scheme:dark" in page
    assert re.findall(r"<script|@import|url\(|src=|href=|https?://(?!www\.w3\.org/2000/svg)", page) == []


@pytest.mark.slow
def test_programs_read_the_same_figures(tmp_path: Path) -> None:
    """With the verdict, and with what was assumed of the cluster."""
    document = json.loads(compare(cluster(tmp_path / "now.json"), "--quick", "-o", "json").stdout)
    assert (document["cluster"]["gpus"], document["cluster"]["assumptions"], document["runs"]) == (24, [], 3)
    assert (
        document["policies"]["gputopo"]["bandwidth"]["mean"] > document["policies"]["stock-least"]["bandwidth"]["mean"]
    )
    assert document["verdict"].endswith("MostAllocated.")


def moved(placed: tuple[float, ...], pods: float, gpus: float) -> list[ResultRow]:
    """Return runs with moves: so many pods placed in each, and so many moved."""
    values = {"moved": pods, "moved_gpus": gpus}
    return rows(MOVES, placed) + [row for seed in range(len(placed)) for row in rows_of("now", MOVES, seed, values)]


@pytest.mark.parametrize(
    ("still", "moving", "difference"),
    [
        ((10, 12, 11), (12, 14, 13), "That is **2.0 more**, in every run."),
        ((10, 12, 11), (18, 19, 20), "That is **8.0 ± 2.5 more**."),
        ((18, 19, 20), (10, 12, 11), "That is worse: **8.0 ± 2.5 fewer**."),
        ((15, 12, 10), (18, 10, 12), "No difference that 3 runs can tell (1.0 ± 6.6 more)."),
        ((18, 10, 12), (15, 12, 10), "No difference that 3 runs can tell (1.0 ± 6.6 fewer)."),
        ((16,), (18,), "One run: 2.0 more, and nothing tells how sure that is."),
    ],
    ids=["every run", "gain", "loss", "chance", "chance of a loss", "one run"],
)
def test_what_moving_brings_is_claimed_no_more_than_the_runs_show(
    still: tuple[float, ...], moving: tuple[float, ...], difference: str
) -> None:
    """Pods are compared run by run; a moved pod does five minutes again on each of its GPUs."""
    measured = rows(PRODUCT, still) + moved(moving, pods=3.0, gpus=6.0)
    (said_of_moves,) = what_moving_brings(GainMeasurement(subject(), measured, len(still)))
    before, _, cost = said_of_moves.partition(difference)
    assert before.endswith(f", {fmean(moving):.1f} pods would fit, and {fmean(still):.1f} without. ")
    assert cost.startswith(" 3.0 pods would move, which costs 0.5 GPU-hours")


def test_of_moving_nothing_is_claimed_that_was_not_measured() -> None:
    """No run with moves says nothing, and one without a single move says so."""
    still = rows(PRODUCT, (10, 12))
    assert what_moving_brings(GainMeasurement(subject(), still, 2)) == []
    (sentence,) = what_moving_brings(GainMeasurement(subject(), still + moved((10, 12), 0.0, 0.0), 2))
    assert sentence.endswith("none would.")


@pytest.mark.slow
def test_moving_makes_room_on_a_cluster_that_placement_alone_fragments(tmp_path: Path) -> None:
    """Three machines of eight GPUs, and pods of one to five."""
    wires = {keys.TOPOLOGY: encode_topology(machine("dgx-1v"))}
    items = [node(f"n{i}", 8, wires) for i in range(3)] + [pod(f"p{i}", size) for i, size in enumerate((1, 2, 3, 5))]
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": items}))
    document = json.loads(compare(tmp_path / "now.json", "--quick", "-o", "json").stdout)
    assert document["moving"]["pods_moved"] > 0
    assert document["moving"]["more_pods"]["mean"] > 0
    assert document["moving"]["cost_gpu_hours"] > 0
    assert "gputopo-moves" not in document["policies"]


def test_nothing_is_said_of_moving_where_pods_share_gpus(tmp_path: Path) -> None:
    """The planner moves whole GPUs."""
    CliRunner().invoke(app, ["snapshot", "--cluster", str(cluster(tmp_path / "now.json")), str(tmp_path / "mine")])
    pods = tmp_path / "mine" / POD_LIST
    pods.write_text(pods.read_text().replace(",1,1000,", ",1,500,"))
    found = compare(tmp_path / "mine", "--quick", "-o", "json")
    assert (found.exit_code, json.loads(found.stdout)["moving"]) == (0, None)


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
