"""One go over a simulated cluster: the real extender places the Jobs' pods, whose script a real shell runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.measure.cluster import KEY
from benchmarks.measure.command import EXIT_INTERRUPTED, Limits, Place, Report, measure_cluster
from benchmarks.measure.job import LABELS, Wanted
from benchmarks.measure.run import Pace, _whole
from benchmarks.measure.store import Unusable
from benchmarks.processes.client import MERGE_PATCH, Json
from benchmarks.simulated.double.faults import RequestFault, Rule, Unreliable
from benchmarks.simulated.double.resources import POD_LOG
from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.jobs import JobController
from benchmarks.simulated.kubelets import Kubelets
from benchmarks.simulated.pod_life import EXIT_CODE
from benchmarks.simulated.scheduler_loop import Bound, SchedulerLoop
from extender.kubernetes.kubeconfig import Kubeconfig
from tests.benchmarks.measure.nccl import write_all_reduce_perf
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from topology.annotations.measurements import decode_measurements
from topology.bandwidth.measured import kind_of

PAIRS, TWO = SimulatedNode("pairs", "a100-pcie-8-pairs"), SimulatedNode("two", "rtx-3090-2")
Rates = Mapping[str, Mapping[tuple[int, ...], str]]
RATES: Rates = {"pairs": {(0, 1): "150.25"}, "two": {(0, 1): "33.5"}}
LIMITS = Limits(labels={}, max_jobs=4, max_sets=3)
JOBS, PODS = "/apis/batch/v1/jobs", "/api/v1/pods"
CONFIG_MAPS = "/api/v1/namespaces/gputopo-system/configmaps"


class Cluster:
    """What runs pods: the scheduler, and containers with a program that prints like nccl-tests."""

    def __init__(self, extender: Running, folder: Path, rates: Rates) -> None:
        self.extender = extender
        self.config = Kubeconfig.find(folder / "kubeconfig", None, {})
        self.held = set[str]()
        """Nodes whose containers do not end."""
        self.cut_before: dict[str, str] = {}
        """Nodes whose containers have printed what is before these words, and go on."""
        self.ended = set[str]()
        self._folder = folder
        for node in (PAIRS, TWO):
            (folder / node.name).mkdir()
            self.install(node, rates.get(node.name, {}))

    def install(self, node: SimulatedNode, rates: Mapping[tuple[int, ...], str]) -> None:
        write_all_reduce_perf(self._folder / node.name / "all_reduce_perf", node.topology, rates)

    async def run(self) -> None:
        scheduler = SchedulerLoop(self.extender.api, self.extender.session, self.extender.url)
        while True:
            for pod in await self.list(PODS):
                if (pod["metadata"].get("labels") or {}).items() >= LABELS.items():
                    if "nodeName" not in pod["spec"]:
                        await scheduler.schedule(pod)
                    elif pod["status"].get("phase") == "Running" and pod["spec"]["nodeName"] not in self.held:
                        await self._contain(pod)
            await asyncio.sleep(0.02)

    async def _contain(self, pod: Json) -> None:
        metadata, (container,) = pod["metadata"], pod["spec"]["containers"]
        if metadata["uid"] in self.ended:
            return
        self.ended.add(metadata["uid"])
        path = {"PATH": f"{self._folder / pod['spec']['nodeName']}:{os.environ['PATH']}"}
        process = await asyncio.create_subprocess_exec(*container["command"], env=path, stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
        annotations = {POD_LOG: printed.decode(), EXIT_CODE: str(process.returncode)}
        if words := self.cut_before.get(pod["spec"]["nodeName"]):
            annotations = {POD_LOG: printed.decode().partition(words)[0]}
        said = {"metadata": {"annotations": annotations}}
        where = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        (await self.extender.api.call("PATCH", where, said, content_type=MERGE_PATCH)).ok()

    async def list(self, path: str) -> list[Json]:
        items: list[Json] = (await self.extender.api.call("GET", path)).ok()["items"]
        return items

    async def measure(
        self,
        limits: Limits = LIMITS,
        place: Place = Place(),  # noqa: B008
        *,
        bound_within: float = 60.0,
        within: float = 600.0,
    ) -> Report:
        asked = Wanted("example.com/nccl-tests:1", runs=2, timeout_seconds=within)
        pace = Pace(look=0.05, bound_within=bound_within)
        return await measure_cluster(self.config, "default", asked, limits, place, lambda line: None, pace)


@asynccontextmanager
async def at_work(
    folder: Path,
    *nodes: SimulatedNode,
    rates: Rates = RATES,
    faults: Unreliable | None = None,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        extender = await stack.enter_async_context(serving(folder, *nodes, faults=faults, settings=settings))
        await stack.enter_async_context(Kubelets(extender.api))
        await stack.enter_async_context(JobController(extender.api))
        namespace = {"metadata": {"name": "gputopo-system"}}
        (await extender.api.call("POST", "/api/v1/namespaces", namespace)).ok()
        cluster = Cluster(extender, folder, rates)
        task = asyncio.create_task(cluster.run())
        try:
            yield cluster
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def measured(report: Report) -> dict[tuple[str, tuple[int, ...]], float]:
    return {(row["node"], tuple(row["gpus"])): row["measured"]["point"] for row in report.document["rows"]}


async def test_each_kind_of_machine_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    """Measured stands beside predicted; the file has the figures with their conditions; no Job and no pod remains."""
    file = tmp_path / "measured.json"
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        report = await cluster.measure(place=Place(file=file))
        kept = decode_measurements(file.read_text()).measurements
        again = await cluster.measure(place=Place(file=file))

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


async def test_what_was_measured_is_what_the_extender_goes_by(tmp_path: Path) -> None:
    """The file that one go has written, mounted, changes the next pod's record."""
    file = tmp_path / "measured.json"
    settings = {"measured.file": str(file), "measured.reread": "20ms"}
    async with at_work(tmp_path, PAIRS, settings=settings) as cluster:
        await cluster.measure(place=Place(file=file))

        async def is_in_force() -> bool:
            return "measured_figures 3" in (await cluster.extender.get("/metrics", cluster.extender.health_url))[1]

        await eventually(is_in_force)
        scheduler = SchedulerLoop(cluster.extender.api, cluster.extender.session, cluster.extender.url)
        pod = await cluster.extender.create("pair", 2)

        async def is_bound() -> Bound | None:  # once the Job's pod has let go of the GPUs
            found = await scheduler.schedule(pod)
            return found if isinstance(found, Bound) else None

        bound = await eventually(is_bound)
        assert bound is not None
        assert bound.record.bandwidth is not None
        assert (bound.record.bandwidth.point, bound.record.bandwidth.measured) == (150.25, True)


async def test_figures_go_into_a_configmap_beside_those_it_has(tmp_path: Path) -> None:
    """One machine first, another one later; `again` replaces what is there."""
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        place = Place(config_map="gpu-bandwidth")
        for labels in ({"kubernetes.io/hostname": "pairs"}, {"kubernetes.io/hostname": "two"}):
            assert (await cluster.measure(Limits(labels=labels, max_jobs=1, max_sets=1), place)).exit_code == 0
        (one_each,) = await cluster.list(CONFIG_MAPS)
        await cluster.measure(Limits(labels={}, max_jobs=4, max_sets=2, again=True), place)
        (more,) = await cluster.list(CONFIG_MAPS)

        found = [decode_measurements(kept["data"][KEY]).measurements.values() for kept in (one_each, more)]
        assert [sorted(len(machine.figures) for machine in kept) for kept in found] == [[1, 1], [1, 2]]


async def test_what_is_done_when_the_time_is_over_counts(tmp_path: Path) -> None:
    """The container goes on, and what it has printed by then is read; the rest is named."""
    async with at_work(tmp_path, PAIRS) as cluster:
        cluster.cut_before["pairs"] = "# gputopo: GPUs 0,1,2\n"
        report = await cluster.measure(within=3.0)

        assert measured(report) == {("pairs", (0, 1)): 150.25}
        assert [problem.split(": ", 2)[1:] for problem in report.document["problems"]] == [
            ["GPUs 0,1,2", "it was not reached in time"],
            ["GPUs 0,1,2,3", "it was not reached in time"],
        ]
        assert await cluster.list(JOBS) == []


async def test_an_api_server_that_is_away_for_a_moment_costs_no_measurement(tmp_path: Path) -> None:
    """Looks and the log are tried again."""
    away = [
        Rule(RequestFault.UNAVAILABLE, method="GET", path="*/log", times=2),
        Rule(RequestFault.RESET_BEFORE, method="GET", path="/api/v1/namespaces/default/pods", times=2),
    ]
    async with at_work(tmp_path, TWO, faults=Unreliable(away)) as cluster:
        report = await cluster.measure()

        assert (measured(report), report.exit_code) == ({("two", (0, 1)): 33.5}, 0)


async def test_who_writes_a_configmap_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    """A write that came between is read again and added to."""
    between = Rule(RequestFault.CONFLICT, method="PATCH", path="*/configmaps/*", times=2)
    async with at_work(tmp_path, TWO, faults=Unreliable([between])) as cluster:
        place = Place(config_map="m")
        await cluster.measure(place=place)
        report = await cluster.measure(Limits(labels={}, max_jobs=1, max_sets=1, again=True), place)

        assert report.exit_code == 0, report.notes


async def test_the_pod_of_an_earlier_go_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """A pod may outlive its Job, with the figures of that day."""
    kept = Rule(RequestFault.FORBIDDEN, method="DELETE", path="*/pods/*")
    async with at_work(tmp_path, TWO, faults=Unreliable([kept])) as cluster:
        found = []
        for rate in ("33.5", "34.5", "35.5"):
            cluster.install(TWO, {(0, 1): rate})
            found.append(measured(await cluster.measure()))

        assert found == [{("two", (0, 1)): rate} for rate in (33.5, 34.5, 35.5)]
        assert len(await cluster.list(PODS)) == 3


async def test_figures_that_cannot_be_kept_are_printed_all_the_same(tmp_path: Path) -> None:
    """With the reason, and exit 1."""
    async with at_work(tmp_path, TWO) as cluster:
        report = await cluster.measure(place=Place(config_map="nowhere/m"))

        assert measured(report) == {("two", (0, 1)): 33.5}
        assert report.document["problems"] == ['not kept: ConfigMap nowhere/m: 404: namespaces "nowhere" not found']
        assert report.exit_code == 1


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


async def test_a_configmap_that_says_something_else_is_not_written_over(tmp_path: Path) -> None:
    """It is told before any Job is made."""
    async with at_work(tmp_path, TWO) as cluster:
        theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {KEY: "mine"}}
        (await cluster.extender.api.call("POST", CONFIG_MAPS, theirs)).ok()
        with pytest.raises(Unusable, match="ConfigMap gputopo-system/m: not JSON"):
            await cluster.measure(place=Place(config_map="m"))

        assert (await cluster.list(CONFIG_MAPS))[0]["data"] == {KEY: "mine"}


async def test_nothing_is_made_in_a_dry_run(tmp_path: Path) -> None:
    """It says which nodes, and how many of the kinds of sets."""
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        report = await cluster.measure(Limits(labels={}, max_jobs=1, max_sets=3, dry_run=True))

        assert report.text.splitlines() == [
            f"{kind_of(PAIRS.topology)}  pairs  8 x NVIDIA A100 80GB PCIe: 3 of 19 kinds of sets",
            f"{kind_of(TWO.topology)}  two: left out: 1 machines are enough for one go",
        ]
        assert await cluster.list(JOBS) == []


async def test_an_interruption_removes_the_jobs_and_keeps_what_is_done(tmp_path: Path) -> None:
    """As Ctrl-C does it, once one machine is measured and while the other one is."""
    file = tmp_path / "measured.json"
    async with at_work(tmp_path, PAIRS, TWO) as cluster:
        cluster.held.add("pairs")
        going = asyncio.create_task(cluster.measure(place=Place(file=file)))

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


async def test_a_pod_that_is_removed_while_it_measures_is_told_at_once(tmp_path: Path) -> None:
    """By a drain, or by pods that come first: it was placed, and there is nothing more to wait for."""
    async with at_work(tmp_path, TWO) as cluster:
        cluster.held.add("two")
        going = asyncio.create_task(cluster.measure())

        async def running() -> Json | None:
            return next((pod for pod in await cluster.list(PODS) if pod["status"].get("phase") == "Running"), None)

        pod = await eventually(running)
        assert pod is not None
        where = f"{PODS.removesuffix('/pods')}/namespaces/default/pods/{pod['metadata']['name']}"
        (await cluster.extender.api.call("DELETE", where, {"gracePeriodSeconds": 0})).ok()

        assert (await going).document["problems"] == ["two: its pod was removed before it had ended"]


async def test_a_job_whose_creation_was_not_answered_is_removed_too(tmp_path: Path) -> None:
    """It is known by its label, whatever the reply said."""
    lost = Rule(RequestFault.ERROR_AFTER, method="POST", path="*/jobs")
    async with at_work(tmp_path, TWO, faults=Unreliable([lost])) as cluster:
        report = await cluster.measure()

        assert report.exit_code == 1
        assert report.document["problems"][0].startswith("two: 500")
        assert await cluster.list(JOBS) == []


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


async def test_a_job_that_cannot_be_removed_is_told_with_what_to_do(tmp_path: Path) -> None:
    """The cluster removes it ten minutes later; until then somebody should know."""
    kept = Rule(RequestFault.FORBIDDEN, method="DELETE", path="*/jobs/*")
    async with at_work(tmp_path, TWO, faults=Unreliable([kept])) as cluster:
        report = await cluster.measure()

        name = f"gputopo-measure-{kind_of(TWO.topology)}"
        assert report.document["problems"] == [f"two: its Job is left: kubectl delete job -n default {name}"]
        assert measured(report) == {("two", (0, 1)): 33.5}


async def test_a_node_with_pods_is_left_alone_whatever_it_would_tell(tmp_path: Path) -> None:
    """Its occupant keeps running, and nothing is made."""
    async with at_work(tmp_path, SimulatedNode("pairs", PAIRS.machine, used=(5,))) as cluster:
        report = await cluster.measure()

        assert report.exit_code == 1
        assert [each["reason"] for each in report.document["skipped"]] == ["no such node is idle: 7 of 8 GPUs are free"]
        assert [pod["metadata"]["name"] for pod in await cluster.list(PODS)] == ["pairs-occupant"]


async def test_a_pod_that_finds_no_place_is_taken_back(tmp_path: Path) -> None:
    """The node was idle a moment ago; nobody shall have to make room."""
    async with at_work(tmp_path, TWO, faults=Unreliable([Rule(RequestFault.CONFLICT, path="*/binding")])) as cluster:
        report = await cluster.measure(bound_within=0.5)

        assert report.document["problems"] == ["two: its pod was not placed within 0.5 s"]
        assert await cluster.list(JOBS) == []
