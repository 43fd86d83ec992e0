"""A simulated cluster to measure: the real extender places the Jobs' pods, whose script a real shell runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from benchmarks.measure.command import CommandReport, MeasurementLimits, StoreLocation, measure_cluster
from benchmarks.measure.job import LABELS, JobOptions
from benchmarks.measure.run import PollTimes
from benchmarks.processes.client import MERGE_PATCH, Json, RequestRefused
from benchmarks.simulated.double.resources import POD_LOG
from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.pod_life import EXIT_CODE
from benchmarks.simulated.scheduler_loop import ExtenderFailed, SchedulerLoop
from extender.kubernetes.kubeconfig import Kubeconfig
from tests.benchmarks.measure.nccl import write_all_reduce_perf
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from tests.world.http_faults import Unreliable
from tests.world.job_controller import JobController
from tests.world.kubelets import Kubelets
from topology.annotations import keys
from topology.annotations.records import decode_ledger

PAIRS, TWO = SimulatedNode("pairs", "a100-pcie-8-pairs"), SimulatedNode("two", "rtx-3090-2")
Rates = Mapping[str, Mapping[tuple[int, ...], str]]
RATES: Rates = {"pairs": {(0, 1): "150.25"}, "two": {(0, 1): "33.5"}}
LIMITS = MeasurementLimits(labels={}, max_jobs=4, max_sets=3)
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
                    with suppress(ExtenderFailed, RequestRefused):  # tried again, and a pod may be gone meanwhile
                        await self._take_on(pod, scheduler)
            await asyncio.sleep(0.02)

    async def _take_on(self, pod: Json, scheduler: SchedulerLoop) -> None:
        if "nodeName" not in pod["spec"]:
            await scheduler.schedule(pod)
        elif pod["status"].get("phase") == "Running" and pod["spec"]["nodeName"] not in self.held:
            await self._contain(pod)

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

    async def let_go(self) -> None:
        """Return when no ledger has a claim: until then a node whose pod has ended is not idle."""

        async def is_so() -> bool:
            ledgers = [node["metadata"]["annotations"][keys.LEDGER] for node in await self.list("/api/v1/nodes")]
            return not any(decode_ledger(ledger).claims for ledger in ledgers)

        await eventually(is_so)

    async def measure(
        self,
        limits: MeasurementLimits = LIMITS,
        place: StoreLocation = StoreLocation(),  # noqa: B008
        *,
        bound_within: float = 60.0,
        within: float = 600.0,
    ) -> CommandReport:
        asked = JobOptions("example.com/nccl-tests:1", runs=2, timeout_seconds=within)
        pace = PollTimes(look=0.05, bound_within=bound_within)
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
            with suppress(asyncio.CancelledError):
                await task


def measured(report: CommandReport) -> dict[tuple[str, tuple[int, ...]], float]:
    return {(row["node"], tuple(row["gpus"])): row["measured"]["point"] for row in report.document["rows"]}
