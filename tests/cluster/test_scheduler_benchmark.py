"""`gputopo-bench scheduler` on the real control plane: whom the scheduler asks, and who writes what."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.performance.waiting_gangs import GANGS
from tests.cluster.binaries import is_oldest
from tests.cluster.component import GO_SETTINGS
from tests.invoking import run


@pytest.fixture(autouse=True)
def cheap_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure is judged here, only that there is one."""
    for name, value in GO_SETTINGS.items():
        monkeypatch.setenv(name, value)


def measure(binaries: Path, *load: str) -> Any:
    """Return the document of a measurement."""
    done = run("benchmarks", "scheduler", *load, "--kube-bin", str(binaries), "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_schedules_with_our_extender_with_a_trivial_one_and_with_none(binaries: Path) -> None:
    """Every pod is bound in every way; an extender that binds writes to the node too, and ours once more after a conflict."""
    found = measure(binaries, "--nodes", "20", "--pods", "12")
    writes = {(row["extender"], row["binder"], row["steered"]): row["writes_per_pod"] for row in found["rows"]}
    assert writes["none", "scheduler", False] == 1
    assert writes["trivial", "extender", False] == 2
    assert 2 <= writes["gputopo", "extender", False] <= 3
    assert 2 <= writes["gputopo", "extender", True] <= 4
    assert all(row["pods_per_second"] > 0 for row in found["rows"])
    assert found["writes_alone_pods_per_second"] is None, "only beside a burst"
    compared = {(ratio["of"], ratio["to"]) for ratio in found["ratios"]}
    assert {("gputopo (steered)", "none"), ("gputopo (steered)", "gputopo")} <= compared
    assert all(ratio["lowest"] <= ratio["median"] <= ratio["highest"] for ratio in found["ratios"])


def test_measures_a_burst_through_kube_scheduler_alone_and_through_the_queue(binaries: Path) -> None:
    """Every pod is bound in every way; only the queue has a planner."""
    measured = measure(binaries, "--queue", "--nodes", "20", "--pods", "12")
    planners = {row["extender"]: row["planner_cpu_ms_per_pod"] for row in measured["rows"]}
    assert planners == {"none": None, "none-default-view": None, "queue": planners["queue"]}
    assert planners["queue"] > 0
    assert all(row["pods_per_second"] > 0 for row in measured["rows"])
    assert [(ratio["of"], ratio["to"]) for ratio in measured["ratios"]] == [
        ("queue", "none"),
        ("queue", "none-default-view"),
    ]


@pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")
def test_measures_a_burst_of_claims_that_kube_scheduler_or_the_planner_allocates(binaries: Path) -> None:
    """Every pod is bound in both ways, no device is given twice; only planned claims have a planner."""
    load = ("--dra", "--nodes", "20", "--pods", "12")
    measured = measure(binaries, *load)
    planners = {row["extender"]: row["planner_cpu_ms_per_pod"] for row in measured["rows"]}
    assert planners == {"dra-plain": None, "dra-planned": planners["dra-planned"]}
    assert planners["dra-planned"] > 0
    assert all(row["pods_per_second"] > 0 and row["devices_given_twice"] == 0 for row in measured["rows"])
    (ratio,) = measured["ratios"]
    assert (ratio["of"], ratio["to"]) == ("dra-planned", "dra-plain")
    assert ratio["lowest"] == ratio["median"] > 0


@pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 knows no PodGroup of its own")
def test_measures_a_burst_with_waiting_gangs_that_are_refused_by_count_or_by_filter(binaries: Path) -> None:
    """Only in the second case our filter refuses: each PodGroup at least once."""
    measured = measure(binaries, "--gangs", "--nodes", "20", "--pods", "12")
    refusals = {row["refused_by"]: row["filter_refusals"] for row in measured["rows"]}
    assert refusals["count"] == 0
    assert refusals["filter"] >= GANGS
    assert all(row["pods_per_second"] > 0 for row in measured["rows"])
    assert measured["ratio"]["lowest"] == measured["ratio"]["median"] > 0


@pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 knows no PodGroup of its own")
def test_measures_how_fast_gangs_start_by_core_and_by_the_queue(binaries: Path) -> None:
    """Every gang starts in both ways."""
    measured = measure(binaries, "--start-gangs", "3x4", "--nodes", "20")
    assert [row["by"] for row in measured["rows"]] == ["core", "queue"]
    assert all(row["gangs_per_second"] > 0 for row in measured["rows"])
    assert measured["ratio"]["lowest"] == measured["ratio"]["median"] > 0


def test_measures_how_long_pods_wait_while_another_tenants_pods_do(binaries: Path) -> None:
    """These wait until the end, as they fit nowhere."""
    load = ("--queue", "--waiting", "30", "--nodes", "20", "--pods", "12", "--per-second", "12")
    measured = measure(binaries, *load)
    waiting = {"queue": 0, "queue-beside-waiting": 30, "queue-beside-gated": 30}
    assert {row["extender"]: row["waiting"] for row in measured["rows"]} == waiting
    assert all(row["pods_per_second"] <= 13.1 for row in measured["rows"])  # the first of twelve pods comes at once
    ratios = {(ratio["of"], ratio["to"]): ratio["created_to_bound_mean"] for ratio in measured["ratios"]}
    assert ratios.keys() == {("queue-beside-waiting", "queue"), ("queue-beside-waiting", "queue-beside-gated")}
    assert all(ratio > 0 for ratio in ratios.values())
