"""What becomes of the Jobs and their pods, however a go ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from benchmarks.measure.command import EXIT_INTERRUPTED, StoreLocation
from benchmarks.measure.job import LABELS
from benchmarks.measure.run import _whole
from benchmarks.processes.client import Json
from tests.benchmarks.measure.at_work import JOBS, PAIRS, PODS, TWO, at_work, measured
from tests.extender.polling import eventually, until
from tests.world.http_faults import RequestFault, Rule, Unreliable
from topology.annotations.measurements import decode_measurements
from topology.bandwidth.measured import kind_of


@pytest.mark.slow
async def test_the_pod_of_an_earlier_go_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """A pod may outlive its Job, with the figures of that day."""
    kept = Rule(RequestFault.FORBIDDEN, method="DELETE", path="*/pods/*")
    async with at_work(tmp_path, TWO, faults=Unreliable([kept])) as cluster:
        found = []
        for rate in ("33.5", "34.5", "35.5"):
            cluster.install(TWO, {(0, 1): rate})
            found.append(measured(await cluster.measure()))
            await cluster.let_go()

        assert found == [{("two", (0, 1)): rate} for rate in (33.5, 34.5, 35.5)]
        assert len(await cluster.list(PODS)) == 3


async def test_what_is_begun_is_ended_before_an_interruption_is_heard(tmp_path: Path) -> None:
    """So a Job is never made without us knowing of it."""
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append("made")

    task = asyncio.create_task(_whole(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["made"]


@pytest.mark.slow
async def test_an_interruption_removes_the_jobs_and_keeps_what_is_done(tmp_path: Path) -> None:
    """As Ctrl-C does it, once one machine is measured and while the other one is."""
    file = tmp_path / "measured.json"
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        cluster.held.add("pairs")
        going = asyncio.create_task(cluster.measure(place=StoreLocation(file=file)))

        async def one_is_left() -> bool:
            phases = [(pod["spec"].get("nodeName"), pod["status"].get("phase")) for pod in await cluster.list(PODS)]
            return bool(cluster.ended) and phases == [("pairs", "Running")]

        await eventually(one_is_left)
        os.kill(os.getpid(), signal.SIGINT)
        report = await going

        assert report.exit_code == EXIT_INTERRUPTED
        assert report.document["problems"] == ["pairs: interrupted"]
        assert await cluster.list(JOBS) == []
        assert [*decode_measurements(file.read_text()).measurements] == [kind_of(TWO.topology)]


@pytest.mark.slow
async def test_who_interrupts_again_does_not_keep_the_jobs_from_being_removed(tmp_path: Path) -> None:
    """Removing takes a moment where the API server is busy, and a Job that is left holds a whole node."""
    busy = Rule(RequestFault.UNAVAILABLE, method="DELETE", path="*/jobs/*", times=3)
    async with at_work(tmp_path, TWO, faults=(faults := Unreliable([busy]))) as cluster:
        cluster.held.add("two")
        going = asyncio.create_task(cluster.measure())

        async def runs() -> bool:
            return [pod["status"].get("phase") for pod in await cluster.list(PODS)] == ["Running"]

        async def is_busy() -> bool:
            return bool(faults.struck[busy])

        await eventually(runs)
        os.kill(os.getpid(), signal.SIGINT)
        await eventually(is_busy)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.02)
        report = await going

        assert report.document["problems"] == ["two: interrupted"]
        assert await cluster.list(JOBS) == []


@pytest.mark.slow
async def test_a_pod_that_is_removed_while_it_measures_is_told_at_once(tmp_path: Path) -> None:
    """By a drain, or by pods that come first: it was placed, and there is nothing more to wait for."""
    looks = Rule(RequestFault.SLOW, method="GET", path="*/namespaces/default/pods", seconds=(0, 0))
    async with at_work(tmp_path, TWO, faults=(faults := Unreliable([looks]))) as cluster:
        cluster.held.add("two")
        going = asyncio.create_task(cluster.measure())

        async def running() -> Json | None:
            return next((pod for pod in await cluster.list(PODS) if pod["status"].get("phase") == "Running"), None)

        pod = await eventually(running)
        assert pod is not None
        begun = faults.struck[looks]
        await until(lambda: faults.struck[looks] >= begun + 2)  # by then one look has seen it
        where = f"{PODS.removesuffix('/pods')}/namespaces/default/pods/{pod['metadata']['name']}"
        (await cluster.extender.api.call("DELETE", where, {"gracePeriodSeconds": 0})).ok()

        assert (await going).document["problems"] == ["two: its pod was removed before it had ended"]


@pytest.mark.slow
async def test_a_job_whose_creation_was_not_answered_is_removed_too(tmp_path: Path) -> None:
    """It is known by its label, whatever the reply said."""
    lost = Rule(RequestFault.ERROR_AFTER, method="POST", path="*/jobs")
    async with at_work(tmp_path, TWO, faults=Unreliable([lost])) as cluster:
        report = await cluster.measure()

        assert report.exit_code == 1
        assert report.document["problems"][0].startswith("two: 500")
        assert await cluster.list(JOBS) == []


@pytest.mark.slow
async def test_a_job_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """Who measures the same kind of machine at the same time is told so, and removes nothing."""
    async with at_work(tmp_path, TWO) as cluster:
        template = {"metadata": {}, "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "i"}]}}
        name = f"gputopo-measure-{kind_of(TWO.topology)}"
        theirs = {"metadata": {"name": name, "labels": LABELS}, "spec": {"template": template}}
        (await cluster.extender.api.call("POST", "/apis/batch/v1/namespaces/default/jobs", theirs)).ok()
        report = await cluster.measure()

        assert report.document["problems"] == ["two: somebody measures it already"]
        assert [job["metadata"]["name"] for job in await cluster.list(JOBS)] == [name]


@pytest.mark.slow
async def test_a_job_that_cannot_be_removed_is_told_with_what_to_do(tmp_path: Path) -> None:
    """The cluster removes it ten minutes later; until then somebody should know."""
    kept = Rule(RequestFault.FORBIDDEN, method="DELETE", path="*/jobs/*")
    async with at_work(tmp_path, TWO, faults=Unreliable([kept])) as cluster:
        report = await cluster.measure()

        name = f"gputopo-measure-{kind_of(TWO.topology)}"
        assert report.document["problems"] == [f"two: its Job is left: kubectl delete job -n default {name}"]
        assert measured(report) == {("two", (0, 1)): 33.5}


@pytest.mark.slow
async def test_a_pod_that_finds_no_place_is_taken_back(tmp_path: Path) -> None:
    """The node was idle a moment ago; nobody shall have to make room."""
    async with at_work(tmp_path, TWO, faults=Unreliable([Rule(RequestFault.CONFLICT, path="*/binding")])) as cluster:
        report = await cluster.measure(bound_within=0.5)

        assert report.document["problems"] == ["two: its pod was not placed within 0.5 s"]
        assert await cluster.list(JOBS) == []
