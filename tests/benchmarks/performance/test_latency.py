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


def test_refuses_more_pods_than_find_a_place() -> None:
    """The figures would be those of refusals."""
    done = run("benchmarks", "latency", "--nodes", "10", "--pods", "100")
    assert (done.returncode, done.stdout) == (2, "")
    assert "more than half of the 80 that 10 nodes have" in done.stderr
