"""`gputopo-bench latency`: the real extender beside the floor, in one run."""

from __future__ import annotations

import json

import pytest

from tests.invoking import run


@pytest.mark.slow
def test_compares_every_verb_that_has_a_floor_with_it() -> None:
    """Filter and prioritize have ratios at p50 and p99 and of CPU, the latter for candidates and all names; bind has no floor."""
    rows = json.loads(run("benchmarks", "latency", "--nodes", "40", "--pods", "10").stdout)["rows"]
    compared = {
        (row["server"], row["verb"])
        for row in rows
        if {"p50_to_floor", "p99_to_floor", "p50_cpu_to_floor"} <= row.keys()
    }
    assert compared == {("gputopo", "filter"), ("gputopo", "prioritize"), ("gputopo, all names", "prioritize")}
    assert {row["calls"] for row in rows} == {10}


@pytest.mark.slow
def test_compares_filter_with_and_without_shared_gpus_in_one_run() -> None:
    """For the same pods, and for a share; of both as times the filter where nothing is shared."""
    rows = json.loads(run("benchmarks", "latency", "--nodes", "60", "--pods", "5", "--shared").stdout)["rows"]
    compared = {row["server"]: row["p50_to_plain"] for row in rows if "p50_to_plain" in row}
    assert compared.keys() == {"half shared", "half shared, 8 GiB"} and all(compared.values())


def test_refuses_more_pods_than_find_a_place() -> None:
    """The figures would be those of refusals."""
    done = run("benchmarks", "latency", "--nodes", "10", "--pods", "100")
    assert (done.returncode, done.stdout) == (2, "")
    assert "more than half of the 80 that 10 nodes have" in done.stderr
