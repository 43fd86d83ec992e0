"""`gputopo-bench scheduler --start-gangs`: which shapes it reads, and what it compares; `tests/cluster` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cli import app
from benchmarks.performance.gang_starts import GangShape, GangStarter, GangStartsRow, compare
from tests.benchmarks.performance.test_throughput import programs
from tests.invoking import call


def test_a_shape_says_how_many_pods_a_gang_has_and_how_many_gangs_there_are() -> None:
    """As in the scheduler benchmark of Kubernetes."""
    assert (GangShape.parse("4x750"), GangShape.parse("1000x3").all_pods) == (GangShape(750, 4), 3000)


@pytest.mark.parametrize("text", ["", "4", "4x", "1x4", "0x3", "4x750x2", "1000x1000", "-1x3"])
def test_a_shape_that_makes_no_sense_is_refused(text: str, tmp_path: Path) -> None:
    """The message says what one looks like."""
    done = call(app, "scheduler", "--start-gangs", text, "--kube-bin", str(programs(tmp_path / "kube")))
    assert (done.returncode, done.stdout) == (2, "")
    assert "not PODSxGANGS such as 4x750" in " ".join(done.stderr.split())


def test_both_ways_are_compared_within_a_round() -> None:
    """A machine that is half as fast in one round changes no ratio."""

    def measured(number: int, by: GangStarter, gangs_per_second: float) -> GangStartsRow:
        return GangStartsRow(number, by, 4, 750, 1000, 10.0, gangs_per_second, 300.0, 1.0, 1.0)

    rows = [
        measured(0, GangStarter.CORE, 2.0),
        measured(0, GangStarter.QUEUE, 4.0),
        measured(1, GangStarter.QUEUE, 2.0),
        measured(1, GangStarter.CORE, 1.0),
    ]
    assert compare(rows) == {"median": 2.0, "lowest": 2.0, "highest": 2.0}
