"""One go over a simulated cluster: what it measures, tells and keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measure.cluster import KEY
from benchmarks.measure.command import MeasurementLimits, StoreLocation
from benchmarks.measure.store import Unusable
from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.scheduler_loop import BoundPod, SchedulerLoop
from tests.benchmarks.measure.at_work import CONFIG_MAPS, JOBS, PAIRS, PODS, TWO, at_work, measured
from tests.extender.polling import eventually
from tests.world.http_faults import RequestFault, Rule, Unreliable
from topology.annotations.measurements import decode_measurements
from topology.bandwidth.measured import kind_of


@pytest.mark.slow
async def test_each_kind_of_machine_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    """Measured stands beside predicted; the file has the figures with their conditions; no Job and no pod remains."""
    file = tmp_path / "measured.json"
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        report = await cluster.measure(place=StoreLocation(file=file))
        kept = decode_measurements(file.read_text()).measurements
        again = await cluster.measure(place=StoreLocation(file=file))

        assert report.exit_code == 0, report.notes
        assert measured(report) == {
            ("pairs", (0, 1)): 150.25,
            ("pairs", (0, 1, 2)): 9.87,
            ("pairs", (0, 1, 2, 3)): 9.87,
            ("two", (0, 1)): 33.5,
        }
        assert {kind: len(machine.figures) for kind, machine in kept.items()} == {
            kind_of(PAIRS.topology): 3,
            kind_of(TWO.topology): 1,
        }
        assert kept[kind_of(TWO.topology)].figures[0].runs_gb_per_s == (33.5, 33.5)
        assert "150.2 (150.2 to 150.2)" in report.text
        assert [each["reason"] for each in again.document["skipped"]] == ["it is measured already"] * 2
        assert await cluster.list(JOBS) == []

        async def is_empty() -> bool:
            return await cluster.list(PODS) == []

        await eventually(is_empty)


@pytest.mark.slow
async def test_what_was_measured_is_what_the_extender_goes_by(tmp_path: Path) -> None:
    """The file that one go has written, mounted, changes the next pod's record."""
    file = tmp_path / "measured.json"
    settings = {"measured.file": str(file), "measured.reread": "20ms"}
    async with at_work(tmp_path, PAIRS, settings=settings) as cluster:
        await cluster.measure(place=StoreLocation(file=file))

        async def is_in_force() -> bool:
            return "measured_figures 3" in (await cluster.extender.get("/metrics", cluster.extender.health_url))[1]

        await eventually(is_in_force)
        scheduler = SchedulerLoop(cluster.extender.api, cluster.extender.session, cluster.extender.url)
        pod = await cluster.extender.create("pair", 2)

        async def is_bound() -> BoundPod | None:  # once the Job's pod has let go of the GPUs
            found = await scheduler.schedule(pod)
            return found if isinstance(found, BoundPod) else None

        bound = await eventually(is_bound)
        assert bound is not None
        assert bound.record.bandwidth is not None
        assert (bound.record.bandwidth.point, bound.record.bandwidth.measured) == (150.25, True)


@pytest.mark.slow
async def test_figures_go_into_a_configmap_beside_those_it_has(tmp_path: Path) -> None:
    """One machine first, another one later; `again` replaces what is there."""
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        place = StoreLocation(config_map="gpu-bandwidth")
        for labels in ({"kubernetes.io/hostname": "pairs"}, {"kubernetes.io/hostname": "two"}):
            assert (
                await cluster.measure(MeasurementLimits(labels=labels, max_jobs=1, max_sets=1), place)
            ).exit_code == 0
        (one_each,) = await cluster.list(CONFIG_MAPS)
        await cluster.let_go()
        await cluster.measure(MeasurementLimits(labels={}, max_jobs=4, max_sets=2, again=True), place)
        (more,) = await cluster.list(CONFIG_MAPS)

        found = [decode_measurements(kept["data"][KEY]).measurements.values() for kept in (one_each, more)]
        assert [sorted(len(machine.figures) for machine in kept) for kept in found] == [[1, 1], [1, 2]]


@pytest.mark.slow
async def test_what_is_done_when_the_time_is_over_counts(tmp_path: Path) -> None:
    """The container goes on, and what it has printed by then is read; the rest is named."""
    async with at_work(tmp_path, PAIRS) as cluster:
        cluster.cut_before["pairs"] = "# gputopo: GPUs 0,1,2\n"
        report = await cluster.measure(within=8.0)

        assert measured(report) == {("pairs", (0, 1)): 150.25}
        assert [problem.split(": ", 2)[1:] for problem in report.document["problems"]] == [
            ["GPUs 0,1,2", "it was not reached in time"],
            ["GPUs 0,1,2,3", "it was not reached in time"],
        ]
        assert await cluster.list(JOBS) == []


@pytest.mark.slow
async def test_an_api_server_that_is_away_for_a_moment_costs_no_measurement(tmp_path: Path) -> None:
    """Looks and the log are tried again."""
    away = [
        Rule(RequestFault.UNAVAILABLE, method="GET", path="*/log", times=2),
        Rule(RequestFault.RESET_BEFORE, method="GET", path="/api/v1/namespaces/default/pods", times=2),
    ]
    async with at_work(tmp_path, TWO, faults=Unreliable(away)) as cluster:
        report = await cluster.measure()

        assert (measured(report), report.exit_code) == ({("two", (0, 1)): 33.5}, 0)


@pytest.mark.slow
async def test_who_writes_a_configmap_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    """A write that came between is read again and added to."""
    between = Rule(RequestFault.CONFLICT, method="PATCH", path="*/configmaps/*", times=2)
    async with at_work(tmp_path, TWO, faults=Unreliable([between])) as cluster:
        place = StoreLocation(config_map="m")
        await cluster.measure(place=place)
        await cluster.let_go()
        report = await cluster.measure(MeasurementLimits(labels={}, max_jobs=1, max_sets=1, again=True), place)

        assert report.exit_code == 0, report.notes


@pytest.mark.slow
async def test_figures_that_cannot_be_kept_are_printed_all_the_same(tmp_path: Path) -> None:
    """With the reason, and exit 1."""
    async with at_work(tmp_path, TWO) as cluster:
        report = await cluster.measure(place=StoreLocation(config_map="nowhere/m"))

        assert measured(report) == {("two", (0, 1)): 33.5}
        assert report.document["problems"] == ['not kept: ConfigMap nowhere/m: 404: namespaces "nowhere" not found']
        assert report.exit_code == 1


@pytest.mark.slow
async def test_a_configmap_that_says_something_else_is_not_written_over(tmp_path: Path) -> None:
    """It is told before any Job is made."""
    async with at_work(tmp_path, TWO) as cluster:
        theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {KEY: "mine"}}
        (await cluster.extender.api.call("POST", CONFIG_MAPS, theirs)).ok()
        with pytest.raises(Unusable, match="ConfigMap gputopo-system/m: not JSON"):
            await cluster.measure(place=StoreLocation(config_map="m"))

        assert (await cluster.list(CONFIG_MAPS))[0]["data"] == {KEY: "mine"}


@pytest.mark.slow
async def test_nothing_is_made_in_a_dry_run(tmp_path: Path) -> None:
    """It says which nodes, and how many of the kinds of sets."""
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        report = await cluster.measure(MeasurementLimits(labels={}, max_jobs=1, max_sets=3, dry_run=True))

        assert report.text.splitlines() == [
            f"{kind_of(PAIRS.topology)}  pairs  8 x NVIDIA A100 80GB PCIe: 3 of 19 kinds of sets",
            f"{kind_of(TWO.topology)}  two: left out: 1 machines are enough for one go",
        ]
        assert await cluster.list(JOBS) == []


@pytest.mark.slow
async def test_a_node_with_pods_is_left_alone_whatever_it_would_tell(tmp_path: Path) -> None:
    """Its occupant keeps running, and nothing is made."""
    async with at_work(tmp_path, SimulatedNode("pairs", PAIRS.machine, used=(5,))) as cluster:
        report = await cluster.measure()

        assert report.exit_code == 1
        assert [each["reason"] for each in report.document["skipped"]] == ["no such node is idle: 7 of 8 GPUs are free"]
        assert [pod["metadata"]["name"] for pod in await cluster.list(PODS)] == ["pairs-occupant"]
