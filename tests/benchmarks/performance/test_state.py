"""`gputopo-bench state`: the real extender beside an API double that holds a whole cluster."""

from __future__ import annotations

import json

import pytest

from tests.invoking import run


@pytest.mark.slow
def test_measures_an_extender_that_knows_who_holds_what() -> None:
    """What its pods hold leaves pods of two a place on every node of eight GPUs, and those of four none."""
    asked = "--nodes", "20", "--pods", "200", "--events", "500", "--seconds", "0.5", "-o", "json"
    (row,) = json.loads(run("benchmarks", "state", *asked).stdout)["rows"]
    assert (row["nodes"], row["pods"], row["gpu_pods"]) == (20, 200, 80)
    assert row["candidates_by_gpus"] == {"1": 16, "2": 16, "4": 0, "8": 0}
    assert min(row["ready_seconds"], row["cpu_seconds"], row["list_seconds"], row["resident_mib"]) > 0
    assert (row["burst_events"], row["missed"]) == (500, 0)
    assert 0 <= row["loop_late_p50_ms"] <= row["loop_late_p99_ms"] <= row["loop_late_max_ms"]
    assert row["floor_late_p99_ms"] >= 0
