"""`gputopo-bench latency`: the real extender beside the floor, in one run."""

from __future__ import annotations

import json

import pytest

from tests.invoking import run


@pytest.mark.slow
def test_compares_every_verb_with_the_floor() -> None:
    """At p50, p99, p99.9 and of CPU: ours, for candidates and all names, one after another and at once; and pydantic's models."""
    asked = "--nodes", "60", "--pods", "10", "--binds-at-once", "5", "-o", "json"
    rows = json.loads(run("benchmarks", "latency", *asked).stdout)["rows"]
    ratios = {"p50_to_floor", "p99_to_floor", "p99_9_to_floor", "p50_cpu_to_floor"}
    compared = {(row["server"], row["verb"], row["at_once"]) for row in rows if ratios <= row.keys()}
    assert compared == {
        ("gputopo", "filter", 1),
        ("gputopo", "prioritize", 1),
        ("gputopo", "bind", 1),
        ("gputopo", "bind", 5),
        ("gputopo, all names", "prioritize", 1),
        ("pydantic", "filter", 1),
        ("pydantic", "prioritize", 1),
    }
    assert {row["calls"] for row in rows if row["at_once"] == 1} == {10}
    assert {row["calls"] for row in rows if row["at_once"] == 5} == {5}
    assert {row["server"] for row in rows if "p99_above_api_ms" in row} == {"gputopo", "floor"}


@pytest.mark.slow
def test_compares_filter_with_and_without_shared_gpus_in_one_run() -> None:
    """For the same pods, and for a share; of both as times the filter where nothing is shared."""
    rows = json.loads(run("benchmarks", "latency", "--nodes", "60", "--pods", "5", "--shared", "-o", "json").stdout)[
        "rows"
    ]
    compared = {row["server"]: row["p50_to_plain"] for row in rows if "p50_to_plain" in row}
    assert compared.keys() == {"half shared", "half shared, 8 GiB"} and all(compared.values())


@pytest.mark.slow
def test_refuses_more_pods_than_find_a_place() -> None:
    """The figures would be those of refusals."""
    done = run("benchmarks", "latency", "--nodes", "10", "--pods", "100")
    assert (done.returncode, done.stdout) == (2, "")
    assert "more than half of the 80 that 10 nodes have" in done.stderr


@pytest.mark.slow
def test_refuses_a_peer_that_is_not_there() -> None:
    """Before anything is started."""
    done = run("benchmarks", "latency", "--gpushare", "/nowhere")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "/nowhere: no such program\n")
