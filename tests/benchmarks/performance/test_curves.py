"""`gputopo-bench curves`: costs over sizes, and with what power they grow."""

from __future__ import annotations

import json

import pytest

from benchmarks.cli import app
from benchmarks.performance.curves import COSTS, fitted
from tests.invoking import call, run


def test_the_exponent_is_that_of_the_power_it_grows_with() -> None:
    """Quadratic is 2, and what stays the same is 0."""
    rows = [{"curve": "nodes", "x": x, "filter_cpu_ms": 3.0 * x * x, "resident_mib": 70.0} for x in (10, 20, 50)]
    assert {fit["cost"]: fit["exponent"] for fit in fitted(rows)} == {"filter_cpu_ms": 2.0, "resident_mib": 0.0}


@pytest.mark.parametrize("asked", [("--points", "5"), ("--of", "dreams"), ("--of", "nodes", "--points", "0")])
def test_refuses_what_it_cannot_measure(asked: tuple[str, ...]) -> None:
    """Points of no curve, a curve that is none, and no nodes at all."""
    done = call(app, "curves", *asked)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
def test_measures_each_cost_at_each_point() -> None:
    """Here of nodes with as many GPUs as the extender takes; a single point has no exponent."""
    found = json.loads(run("benchmarks", "curves", "--of", "gpus", "--points", "72", "-o", "json").stdout)
    assert [row["x"] for row in found["rows"]] == [72]
    assert all(row[cost] > 0 for row in found["rows"] for cost in COSTS)
    assert found["fits"] == []
