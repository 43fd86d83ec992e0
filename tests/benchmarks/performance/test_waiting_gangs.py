"""`gputopo-bench scheduler --gangs`: what it compares, and what it refuses; `tests/cluster` runs it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cli import app
from benchmarks.performance.waiting_gangs import GangsRow, RefusedBy, compare
from tests.benchmarks.performance.test_throughput import programs
from tests.invoking import call


def measured(number: int, refused_by: RefusedBy, pods_per_second: float) -> GangsRow:
    return GangsRow(number, refused_by, pods_per_second, 1.0, 0.5, 0, 1.0)


def test_both_cases_are_compared_within_a_round() -> None:
    """A machine that is half as fast in one round changes no ratio, in whichever order the round went."""
    rows = [
        measured(0, RefusedBy.COUNT, 100.0),
        measured(0, RefusedBy.FILTER, 90.0),
        measured(1, RefusedBy.FILTER, 50.0),
        measured(1, RefusedBy.COUNT, 50.0),
        measured(2, RefusedBy.COUNT, 40.0),
        measured(2, RefusedBy.FILTER, 48.0),
    ]
    assert compare(rows) == {"median": 1.0, "lowest": 0.9, "highest": 1.2}


def test_a_kubernetes_without_pod_groups_is_refused(tmp_path: Path) -> None:
    """The message names the folder and both versions."""
    folder = programs(tmp_path / "old")
    done = call(app, "scheduler", "--gangs", "--kube-bin", str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{folder}: Kubernetes v1.9.0 has no PodGroups; 1.37 or later is needed" in " ".join(done.stderr.split())
