"""`gputopo-bench placement`: one JSON document, the same for any number of processes, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.placement.command import experiment_of
from benchmarks.placement.report.differences import differences
from benchmarks.placement.rows import ResultRow
from benchmarks.placement.scenarios.inflation import METRICS
from tests.benchmarks.placement.test_openb import trace


def run(*arguments: str) -> tuple[int, str, str]:
    """Run the command and return exit code, stdout and stderr."""
    result = CliRunner().invoke(app, ["placement", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_prints_rows_of_the_promised_form(tmp_path: Path) -> None:
    """A trace alone is FGD's experiment."""
    trace(tmp_path)
    code, out, _ = run(
        "--trace", str(tmp_path), "--policies", "best-fit,fgd", "--seeds", "2", "--jobs", "1", "-o", "json"
    )
    rows = json.loads(out)["rows"]
    assert code == 0
    assert {tuple(row) for row in rows} == {("workload", "policy", "seed", "metric", "x", "value")}
    assert {row["policy"] for row in rows} == {"best-fit", "fgd"}
    assert {row["metric"] for row in rows} == {*METRICS}


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    """Bit for bit."""
    trace(tmp_path)
    same = ("--trace", str(tmp_path), "--policies", "random,fgd-lot", "--seeds", "3", "-o", "json")
    assert json.loads(run(*same, "--jobs", "1")[1])["rows"] == json.loads(run(*same, "--jobs", "2")[1])["rows"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "--scenario"),
        (("--scenario", "nowhere"), "link-graph"),
        (("--scenario", "link-graph", "--workloads", "dgx-9"), "dgx-1v/load-0.82"),
        (("--scenario", "link-graph", "--policies", "wise"), "stock-least"),
        (("--trace", "/nonexistent"), "/nonexistent is no folder"),
        (("--scenario", "link-graph", "--trace", "/"), "takes no trace"),
    ],
)
def test_bad_usage_is_exit_2_and_says_what_there_is(arguments: tuple[str, ...], reason: str) -> None:
    """The message names the choices or the path."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert reason in err


def test_compares_policies_seed_by_seed() -> None:
    """Where theirs is 2 more of 4 and 4 more of 8 that is half as much again, ± what the two seeds differ by."""
    rows = [
        ResultRow("busy", policy, seed, "hours", None, value)
        for policy, values in (("ours", (4.0, 8.0)), ("theirs", (6.0, 12.0)), ("same", (4.0, 8.0)))
        for seed, value in enumerate(values)
    ]
    *_, line = differences(rows, "ours", ["hours", "days"]).splitlines()
    assert line == "| busy (2) | 6, – | +50.0 ± 211.8, – | +0.0 ± 0.0, – |"


def test_of_metrics_along_a_run_the_last_point_is_compared() -> None:
    """As in the summary: what is allocated at 130 % asked for."""
    rows = [
        ResultRow("w", policy, 1, "allocation_pct", x, value)
        for policy, end in (("ours", 90.0), ("theirs", 81.0))
        for x, value in ((10.0, 10.0), (130.0, end))
    ]
    assert "| 90 | -10.0 ± inf |" in differences(rows, "ours", ["allocation_pct"])


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--against", "fgd")])
def test_metrics_are_those_that_were_asked_for(tmp_path: Path, how: tuple[str, ...]) -> None:
    """In the summary and beside another policy; a word that is no metric is refused, and what was measured is not lost."""
    trace(tmp_path)
    same = ("--trace", str(tmp_path), "--policies", "best-fit,fgd", "--seeds", "1", "--jobs", "1", *how)
    assert run(*same, "--metrics", "allocation_pct")[0] == 0
    assert "fragmentation_pct" not in run(*same, "--metrics", "allocation_pct")[1]
    rows = json.loads(run(*same, "--metrics", "allocation_pct", "-o", "json")[1])["rows"]
    assert {row["metric"] for row in rows} == {"allocation_pct"}
    code, out, err = run(*same, "--metrics", "jct")
    assert (code, out) == (2, run(*same)[1])
    assert "no metric 'jct' was measured; there are allocation_pct" in err


@pytest.mark.parametrize(("asked", "others"), [(["--policies", "best-fit"], "best-fit"), ([], "random | dot-product")])
def test_the_policy_compared_against_runs_as_well(tmp_path: Path, asked: list[str], others: str) -> None:
    """Though it was not asked for, and is none of the scenario's own; the table says what its cells hold."""
    trace(tmp_path)
    same = f"--trace {tmp_path} --against stock-most --metrics allocation_pct --seeds 1 --jobs 1".split()
    code, out, _ = run(*same, *asked)
    assert code == 0
    assert out.startswith(f"| allocation_pct by workload (seeds) | stock-most | {others} |")


def test_nobody_is_compared_against_a_policy_that_there_is_not(tmp_path: Path) -> None:
    """Known before anything runs."""
    trace(tmp_path)
    code, out, err = run("--trace", str(tmp_path), "--against", "nobody")
    assert (code, out) == (2, "")
    assert "no policy is called 'nobody'" in err


def test_a_quick_run_says_what_it_leaves_out_and_keeps_what_was_named() -> None:
    """One workload, few policies, two seeds; whoever names more gets it."""
    quick = experiment_of("link-graph", None, [], [], None, quick=True)
    assert len(quick.cells) == 2 * 4
    assert {cell.workload for cell in quick.cells} == {"dgx-1v/load-0.82"}
    assert "2 seeds instead of 10" in quick.cut
    assert "hami-binpack" in quick.cut
    named = experiment_of("link-graph", None, ["l40s-8/load-1.01"], ["hami-binpack"], 3, quick=True)
    assert [(cell.workload, cell.policy) for cell in named.cells] == [("l40s-8/load-1.01", "hami-binpack")] * 3
    assert "hami-binpack" not in named.cut
    assert experiment_of("link-graph", None, [], [], None).cut == ""


@pytest.mark.parametrize(("arguments", "seeds"), [([], {42, 43}), (["--first-seed", "0"], {0, 1})])
def test_runs_have_the_seeds_that_were_asked_for(tmp_path: Path, arguments: list[str], seeds: set[int]) -> None:
    """One after the other, from 42 on or from another one."""
    trace(tmp_path)
    same = f"--trace {tmp_path} --policies stock-most --seeds 2 --jobs 1 -o json".split()
    code, out, _ = run(*same, *arguments)
    assert code == 0
    assert {row["seed"] for row in json.loads(out)["rows"]} == seeds


@pytest.mark.slow
def test_the_output_of_a_quick_run_says_so(tmp_path: Path) -> None:
    """In text and in JSON; a whole run has no such word."""
    trace(tmp_path)
    same = ("--trace", str(tmp_path), "--seeds", "1", "--jobs", "1")
    assert (
        run(*same, "--quick")[1]
        .splitlines()[-1]
        .startswith("Quick run: 1 seed instead of 10; without the policies random, ")
    )
    assert json.loads(run(*same, "--quick", "-o", "json")[1])["cut"].startswith("Quick run: ")
    assert "cut" not in json.loads(run(*same, "--policies", "best-fit", "-o", "json")[1])


def test_pods_placed_are_those_that_found_gpus(tmp_path: Path) -> None:
    """Two GPUs, pods of half of one: four are asked for by the time as many GPUs are as there are, and all find a place."""
    trace(tmp_path, pods="name,cpu_milli,num_gpu,gpu_milli\np,1,1,500\n")
    rows = json.loads(
        run("--trace", str(tmp_path), "--policies", "best-fit", "--seeds", "1", "--jobs", "1", "-o", "json")[1]
    )
    along = {(row["metric"], row["x"]): row["value"] for row in rows["rows"]}
    assert (along["pods_placed", 100], along["pods_arrived", 100]) == (4, 4)
    assert (along["pods_placed", 130], along["pods_arrived", 130]) == (4, 5)
