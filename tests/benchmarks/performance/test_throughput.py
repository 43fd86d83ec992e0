"""`gputopo-bench scheduler`: what it asks of the scheduler, and where it finds one; `tests/cluster` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cli import app
from benchmarks.performance.throughput import (
    GPUTOPO,
    GPUTOPO_BY_DEFAULT,
    GPUTOPO_LOOKS,
    NONE,
    NONE_BY_DEFAULT,
    STEERED,
    STORMY,
    TRIVIAL,
    ThroughputLoad,
    ThroughputRow,
    Variant,
    compare,
    scheduler_configuration,
)
from benchmarks.processes.kube_binaries import PROGRAMS, BinariesMissing, find_binaries
from tests.cluster.extender_process import scheduler_configuration as of_the_chart
from tests.invoking import call


def programs(folder: Path) -> Path:
    """Make a folder that looks like one with all programs."""
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        (folder / name).write_text("#!/bin/sh\necho Kubernetes v1.9.0\n")
        (folder / name).chmod(0o755)
    return folder


def measured(number: int, variant: Variant, pods_per_second: float, p99_seconds: float | None = None) -> ThroughputRow:
    who = variant.extender, variant.binder, variant.steered
    return ThroughputRow(
        number, *who, 1000, 300, 100, False, 10.0, pods_per_second, 1.0, None, None, p99_seconds, variant.storm, None,
        variant.default_view,
    )  # fmt: skip


def test_compares_within_a_round() -> None:
    """A machine that is half as fast in one round changes no ratio, in whichever order the round went."""
    rates = {NONE: 100.0, TRIVIAL: 80.0, GPUTOPO: 72.0, GPUTOPO_LOOKS: 95.0, STEERED: 300.0}
    first = [measured(0, variant, rate) for variant, rate in rates.items()]
    second = [measured(1, variant, rate / 2) for variant, rate in reversed(rates.items())]
    ratios = {(ratio["of"], ratio["to"]): (ratio["lowest"], ratio["highest"]) for ratio in compare([*first, *second])}
    assert ratios["gputopo", "trivial"] == (0.9, 0.9)
    assert ratios["gputopo (filter, prioritize)", "none"] == (0.95, 0.95)
    assert ratios["gputopo (steered)", "none"] == (3.0, 3.0)
    assert ratios["gputopo (steered)", "gputopo"] == (4.167, 4.167)


def test_compares_how_long_the_pods_of_a_burst_waited() -> None:
    """Within a round, too; where the pods were there before the scheduler nobody can say."""
    rows = [measured(number, NONE, 70.0, 20.0 * number + 10) for number in range(3)]
    rows += [measured(number, STEERED, 280.0, 4.0 * number + 2) for number in range(3)]
    assert [ratio["created_to_bound_p99"] for ratio in compare(rows)] == [0.2]
    assert [
        ratio["created_to_bound_p99"] for ratio in compare([measured(0, NONE, 1.0), measured(0, STEERED, 1.0)])
    ] == [None]


def test_both_views_are_compared_in_one_run() -> None:
    """With every node in view, as the chart has it, and with the tenth that kube-scheduler looks at by default."""
    rates = {NONE: 25.0, GPUTOPO: 20.0, STEERED: 55.0, NONE_BY_DEFAULT: 200.0, GPUTOPO_BY_DEFAULT: 100.0}
    found = compare([measured(0, variant, rate) for variant, rate in rates.items()])
    ratios = {(ratio["of"], ratio["to"]): ratio["median"] for ratio in found}
    assert ratios["gputopo", "none"] == 0.8
    assert ratios["gputopo", "none (default view)"] == 0.1
    assert ratios["gputopo (steered)", "none (default view)"] == 0.275
    assert ratios["gputopo (default view)", "none (default view)"] == 0.5


@pytest.mark.parametrize(
    ("nodes", "percentage", "are_two"), [(5000, 100, True), (5000, 0, False), (100, 100, False), (101, 50, True)]
)
def test_the_default_view_is_measured_where_it_is_another_one(nodes: int, percentage: int, *, are_two: bool) -> None:
    """Up to 100 nodes kube-scheduler looks at all of them, whatever it is told."""
    load = ThroughputLoad(nodes, 300, 16, percentage)
    assert (NONE_BY_DEFAULT in load.variants) == are_two
    assert [load.percentage(variant) for variant in (NONE, NONE_BY_DEFAULT)] == [percentage, 0]


def test_a_storm_is_compared_with_the_calm() -> None:
    """The rate of other pods while rejected ones are tried again, to that without."""
    (ratio,) = compare([measured(0, GPUTOPO, 50.0), measured(0, STORMY, 45.0)])
    assert (ratio["of"], ratio["to"], ratio["median"]) == ("gputopo (retry storm)", "gputopo", 0.9)


def test_the_scheduler_asks_as_the_chart_has_it() -> None:
    """What is measured is what is installed: all verbs, weight and limits of our sample configuration."""
    ours = scheduler_configuration("http://127.0.0.1:8888", "extender", 100)
    assert ours.items() <= of_the_chart({}).items()


def test_says_what_is_missing(tmp_path: Path) -> None:
    """Bad usage, and nothing on stdout: a folder without the programs is named with the first that is absent."""
    done = call(app, "scheduler", "--kube-bin", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}: etcd is not an executable file there" in done.stderr


def test_looks_into_the_cache_where_nobody_names_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a whole build there the reason says where it looked, and how to get one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BinariesMissing, match=f"{tmp_path}.*--kube-bin.*tests.cluster.binaries"):
        find_binaries(None)
    (tmp_path / "gputopo" / "kube" / "half").mkdir(parents=True)
    whole = programs(tmp_path / "gputopo" / "kube" / "whole")
    assert find_binaries(None) == whole
