"""`gputopo-bench state`: the real extender beside an API double that holds a whole cluster."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_cli import answer


@pytest.mark.slow
def test_measures_an_extender_that_knows_who_holds_what() -> None:
    """Six of each node's eight GPUs are held by four pods, so pods of up to two find a place and no larger ones."""
    (row,) = answer("state", "--nodes", "20", "--pods", "200")["rows"]
    assert (row["nodes"], row["pods"], row["gpu_pods"]) == (20, 200, 80)
    assert row["candidates_by_gpus"] == {"1": 16, "2": 16, "4": 0, "8": 0}
    assert min(row["ready_seconds"], row["cpu_seconds"], row["list_seconds"], row["resident_mib"]) > 0
