"""`gputopo-bench scheduler --queue`: what it compares, and what it refuses; `tests/cluster` runs it."""

from __future__ import annotations

import pytest

from benchmarks.cli import app
from benchmarks.performance.queue_burst import BurstWay, QueueBurstLoad, QueueBurstRow, compare
from tests.invoking import call


def measured(number: int, way: BurstWay, pods_per_second: float, p99_seconds: float) -> QueueBurstRow:
    return QueueBurstRow(
        number, way, 500, 300, 0, 100, 3.0, pods_per_second, p99_seconds / 2, 1.0, p99_seconds, None, 10.0, 1.0
    )


def test_the_queue_is_compared_with_both_views_of_the_same_round() -> None:
    """A machine that is half as fast in one round changes no ratio, in whichever order the round went."""
    rows = [
        measured(0, BurstWay.NONE, 40.0, 20.0),
        measured(0, BurstWay.DEFAULT_VIEW, 200.0, 4.0),
        measured(0, BurstWay.QUEUE, 120.0, 5.0),
        measured(1, BurstWay.QUEUE, 60.0, 10.0),
        measured(1, BurstWay.DEFAULT_VIEW, 100.0, 8.0),
        measured(1, BurstWay.NONE, 20.0, 40.0),
    ]
    of_all, of_default = compare(rows)
    assert (of_all["to"], of_all["lowest"], of_all["highest"], of_all["created_to_bound_p99"]) == ("none", 3, 3, 0.25)
    assert (of_default["to"], of_default["median"], of_default["created_to_bound_p99"]) == (
        "none-default-view",
        0.6,
        1.25,
    )


def test_the_others_waiting_time_is_compared_with_that_without_the_waiting_pods() -> None:
    """It is also compared with that beside as many pods behind a gate that is not ours: they cost kube-scheduler the same."""
    ways = (BurstWay.QUEUE, BurstWay.BESIDE_WAITING, BurstWay.BESIDE_GATED)
    assert QueueBurstLoad(500, 300, waiting=5000).ways == ways
    seconds = dict(zip(ways, (4.0, 5.0, 4.5), strict=True))
    without, beside_gated = compare([measured(0, way, 100.0, seconds[way]) for way in ways])
    assert (without["of"], without["to"]) == ("queue-beside-waiting", "queue")
    assert without["created_to_bound_mean"] == 1.25
    assert (beside_gated["to"], beside_gated["created_to_bound_mean"]) == (
        "queue-beside-gated",
        pytest.approx(1.11, abs=0.01),
    )


@pytest.mark.parametrize("option", ["--burst", "--storm"])
@pytest.mark.parametrize("measurement", [("--gangs",), ("--queue",), ("--start-gangs", "4x3")])
def test_measurements_are_not_combined(measurement: tuple[str, ...], option: str) -> None:
    """Each of them has a load of its own."""
    done = call(app, "scheduler", *measurement, option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{measurement[0]}: not with {option}" in done.stderr


@pytest.mark.parametrize("option", ["--waiting", "--per-second"])
def test_pods_wait_in_the_queue_only(option: str) -> None:
    """Without it kube-scheduler would try them."""
    done = call(app, "scheduler", option, "10")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{option} needs --queue\n")
