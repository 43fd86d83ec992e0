"""`gputopo-bench scheduler --gangs`: what PodGroups that our filter refuses cost all other pods.

Ten PodGroups wait in both cases. In one kube-scheduler refuses them itself, as no node has so many GPUs. In the other our filter
refuses them, as no GPUs are so fast. Then a burst of other pods comes. The cases alternate, each with a control plane of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from benchmarks.performance.burst import STALLED_AFTER_SECONDS, Stalled, alternating, create_pods, spread, until_bound
from benchmarks.performance.machine import describe_machine
from benchmarks.performance.throughput import scheduler_configuration
from benchmarks.performance.verbs import create
from benchmarks.processes import pod_groups
from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.control_plane import running_control_plane, running_scheduler
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kube_binaries import kubernetes_version, version_numbers
from benchmarks.processes.process import Process, end_in_order_on_signals
from benchmarks.simulated.fleet import check_capacity, gpu_pod, join, mixed_fleet
from topology.annotations import keys

GANGS = 10
MEMBERS = 2
_POLL_SECONDS = 0.1
_MORE_THAN_A_NODE_HAS = 16
_MORE_THAN_ANY: Final = {keys.MIN_BANDWIDTH: "1000000"}


class WithoutPodGroups(Exception):
    """A Kubernetes is too old to have PodGroups; the text names its version."""


class RefusedBy(StrEnum):
    """Who refuses the PodGroups that wait."""

    COUNT = "count"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class GangsLoad:
    """What waits, and what comes then."""

    nodes: int
    pods: int
    """Of the burst."""
    candidates: int
    percentage_of_nodes_to_score: int


@dataclass(frozen=True, slots=True)
class GangsRow:
    """One measurement."""

    round: int
    refused_by: RefusedBy
    pods_per_second: float
    """Of the burst, from its first Binding to its last."""
    extender_cpu_seconds: float
    """From the burst's first pod until all are bound."""
    scheduler_cpu_seconds: float
    filter_refusals: int
    """How often our filter passed on no node, from the start of the scheduler."""
    load: float
    """Of the machine, over the minute before."""


def measure(load: GangsLoad, rounds: int, binaries: Path) -> dict[str, Any]:
    """Return a row for each case and round; raises `TooFewGpus`, `NotReady`, `Stalled`, `WithoutPodGroups`."""
    kubernetes = check_pod_groups(binaries)
    check_capacity(load.nodes, load.pods)
    machine = describe_machine()
    end_in_order_on_signals()
    rows = []
    for number, refused_by in alternating([*RefusedBy], rounds, lambda case: f"refused by {case}"):
        with tempfile.TemporaryDirectory(prefix="gputopo-gangs-") as folder:
            rows.append(asyncio.run(_measure(Path(folder), binaries, load, refused_by, number)))
    return {
        "rows": [asdict(row) for row in rows],
        "ratio": compare(rows),
        "kubernetes": kubernetes,
        "machine": machine,
    }


def check_pod_groups(binaries: Path) -> str:
    """Return which Kubernetes these programs are; raises `WithoutPodGroups`."""
    kubernetes = kubernetes_version(binaries)
    if version_numbers(kubernetes) < [*pod_groups.OLDEST]:
        oldest = ".".join(map(str, pod_groups.OLDEST))
        raise WithoutPodGroups(f"{binaries}: Kubernetes {kubernetes} has no PodGroups; {oldest} or later is needed")
    return kubernetes


def compare(rows: Sequence[GangsRow]) -> dict[str, float]:
    """Return the pods per second where our filter refuses, of those where the count does, round by round."""
    by_filter, by_count = (
        {row.round: row.pods_per_second for row in rows if row.refused_by is who}
        for who in (RefusedBy.FILTER, RefusedBy.COUNT)
    )
    return spread([rate / by_count[number] for number, rate in by_filter.items()])


def as_text(measured: dict[str, Any]) -> str:
    """Return rows and ratio as lines."""
    lines = [_line(row) for row in measured["rows"]]
    for who in RefusedBy:
        cpu = [row["extender_cpu_seconds"] for row in measured["rows"] if row["refused_by"] == who]
        lines.append(f"extender's CPU, refused by {who:<8}{statistics.median(cpu):6.2f} s {_range(min(cpu), max(cpu))}")
    ratio = measured["ratio"]
    lines.append(f"pods/s, filter / count: {ratio['median']:.2f} {_range(ratio['lowest'], ratio['highest'])}")
    return "\n".join([*lines, f"Kubernetes {measured['kubernetes']}"])


def _line(row: dict[str, Any]) -> str:
    return (
        f"refused by {row['refused_by']:<8}{row['pods_per_second']:8.1f} pods/s"
        f"{row['extender_cpu_seconds']:8.2f} s of the extender's CPU"
        f"{row['scheduler_cpu_seconds']:8.2f} s of the scheduler's{row['filter_refusals']:6} refusals   load {row['load']:.1f}"
    )


def _range(lowest: float, highest: float) -> str:
    return f"({lowest:.2f} to {highest:.2f})"


async def _measure(folder: Path, binaries: Path, load: GangsLoad, refused_by: RefusedBy, number: int) -> GangsRow:
    settings = {"scheduling": {"candidates": load.candidates, "schedulerNames": ["default-scheduler"]}}
    async with (
        running_control_plane(binaries, folder, pod_groups.APISERVER_FLAGS) as plane,
        ApiClient.from_kubeconfig(plane.kubeconfig) as api,
    ):
        await join(api, mixed_fleet(load.nodes))
        async with running_extender(plane.kubeconfig, folder, settings) as extender:
            configuration = scheduler_configuration(extender.url, "extender", load.percentage_of_nodes_to_score)
            async with running_scheduler(plane, configuration, pod_groups.SCHEDULER_FLAGS) as scheduler:
                await _create_gangs(api, refused_by)
                await _until_tried(api, scheduler)
                machine_load = os.getloadavg()[0]
                ours, theirs = extender.process.cpu_seconds(), scheduler.cpu_seconds()
                looking = asyncio.create_task(until_bound(api, load.pods, scheduler))
                await create_pods(api, load.pods)
                bound = await looking
                ours, theirs = extender.process.cpu_seconds() - ours, scheduler.cpu_seconds() - theirs
                refusals = await _filter_refusals(extender)
    seconds = max(bound.values()) - min(bound.values())
    rate = round((load.pods - 1) / seconds, 1)
    return GangsRow(number, refused_by, rate, round(ours, 2), round(theirs, 2), refusals, round(machine_load, 1))


async def _create_gangs(api: ApiClient, refused_by: RefusedBy) -> None:
    for gang in range(GANGS):
        (await api.call("POST", pod_groups.POD_GROUPS, pod_groups.pod_group(f"gang-{gang}", MEMBERS))).ok()
        for at in range(MEMBERS):
            await create(api, pod_groups.member(_refused(f"gang-{gang}-{at}", refused_by), f"gang-{gang}"))


def _refused(name: str, refused_by: RefusedBy) -> Json:
    match refused_by:
        case RefusedBy.COUNT:
            return gpu_pod(name, _MORE_THAN_A_NODE_HAS)
        case RefusedBy.FILTER:
            return gpu_pod(name, 2, _MORE_THAN_ANY)


async def _until_tried(api: ApiClient, scheduler: Process) -> None:
    """Return when kube-scheduler has refused every PodGroup; raises `Stalled`."""
    try:
        async with asyncio.timeout(STALLED_AFTER_SECONDS):
            while not all(map(pod_groups.was_tried, (await api.call("GET", pod_groups.POD_GROUPS)).ok()["items"])):  # noqa: ASYNC110 - it is not ours
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as silence:
        raise Stalled(f"not all PodGroups were tried:\n{scheduler.log_tail()}") from silence


async def _filter_refusals(extender: RunningExtender) -> int:
    async with ApiClient(extender.url) as page:
        refusals = _REFUSALS.search(await page.text("/metrics"))
    return int(float(refusals[1])) if refusals else 0


_REFUSALS = re.compile(
    r'^gputopo_verdicts_total\{(?=[^}]*verb="filter")(?=[^}]*reason="no-fit")[^}]*\} (\S+)$', re.MULTILINE
)
