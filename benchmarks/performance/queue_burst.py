"""`gputopo-bench scheduler --queue`: a burst of pods through kube-scheduler alone, and through the queue in front of it.

No kube-scheduler here knows an extender. Each measurement has a control plane of its own, and its nodes are empty. The pods are
created while kube-scheduler and planner run. Those of the queue have its gate; the planner is a process that shares the
machine with all others. The time from the first pod's creation counts, so the planner's rounds do, too.

With `--waiting` the queue is measured without and with pods of another namespace that wait in it and fit nowhere. It is also
measured beside as many pods with a gate that nobody serves. These cost kube-scheduler and API server the same, and the planner
next to nothing.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from benchmarks.performance.burst import CREATED_AT_ONCE, alternating, create_pods, spread, until_bound
from benchmarks.performance.machine import describe_machine
from benchmarks.performance.verbs import percentile
from benchmarks.processes.client import ApiClient, Json, for_all
from benchmarks.processes.control_plane import running_control_plane, running_scheduler
from benchmarks.processes.kube_binaries import kubernetes_version
from benchmarks.processes.kube_settings import CLIENT_LIMITS
from benchmarks.processes.planner import GATE, running_planner
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.fleet import check_capacity, gpu_pod, join, mixed_fleet
from extender.features.queue.feature import AT_ONCE
from topology.annotations import keys

_ALL_NODES, _BY_DEFAULT = 100, 0
_TENANT: Final = "tenant"
_OTHER_GATE: Final = {"name": "example.com/closed"}


class BurstWay(StrEnum):
    """How pods get to their nodes."""

    NONE = "none"
    """By kube-scheduler, with all nodes in view."""
    DEFAULT_VIEW = "none-default-view"
    """By kube-scheduler, which looks at as many nodes as it does by default."""
    QUEUE = "queue"
    """Planned by the queue; kube-scheduler is set up as for `none`."""
    BESIDE_WAITING = "queue-beside-waiting"
    """The same, while pods of another namespace wait in the queue."""
    BESIDE_GATED = "queue-beside-gated"
    """The same, while these pods wait behind a gate of somebody else."""

    @property
    def percentage_of_nodes_to_score(self) -> int:
        """What kube-scheduler's configuration says."""
        return _BY_DEFAULT if self is BurstWay.DEFAULT_VIEW else _ALL_NODES

    @property
    def is_planned(self) -> bool:
        """Whether pods have the gate of the queue."""
        return self not in (BurstWay.NONE, BurstWay.DEFAULT_VIEW)


COMPARED: Final = (
    (BurstWay.QUEUE, BurstWay.NONE),
    (BurstWay.QUEUE, BurstWay.DEFAULT_VIEW),
    (BurstWay.BESIDE_WAITING, BurstWay.QUEUE),
    (BurstWay.BESIDE_WAITING, BurstWay.BESIDE_GATED),
)


@dataclass(frozen=True, slots=True)
class QueueBurstLoad:
    """What is to be scheduled, and what waits meanwhile."""

    nodes: int
    pods: int
    waiting: int = 0
    """Pods of another namespace."""
    per_second: float = 0.0
    """Pods created in a second, 0 as many as possible."""

    @property
    def ways(self) -> tuple[BurstWay, ...]:
        """What is compared."""
        return (
            (BurstWay.QUEUE, BurstWay.BESIDE_WAITING, BurstWay.BESIDE_GATED)
            if self.waiting
            else (BurstWay.NONE, BurstWay.DEFAULT_VIEW, BurstWay.QUEUE)
        )


@dataclass(frozen=True, slots=True)
class QueueBurstRow:
    """One measurement."""

    round: int
    extender: BurstWay
    nodes: int
    pods: int
    waiting: int
    """Pods of another namespace, in the queue or behind another gate."""
    percentage_of_nodes_to_score: int
    seconds: float
    """From the first pod's creation to the last Binding."""
    pods_per_second: float
    created_to_bound_mean_seconds: float
    created_to_bound_p50_seconds: float
    created_to_bound_p99_seconds: float
    planner_cpu_ms_per_pod: float | None
    scheduler_cpu_ms_per_pod: float
    load: float
    """Of the machine, over the minute before."""


def measure(load: QueueBurstLoad, rounds: int, binaries: Path) -> dict[str, Any]:
    """Return a row for each way and round, and the ratios; raises `TooFewGpus`, `NotReady`, `Stalled`."""
    check_capacity(load.nodes, load.pods)
    machine = describe_machine()
    end_in_order_on_signals()
    rows = []
    for number, way in alternating(load.ways, rounds, str):
        with tempfile.TemporaryDirectory(prefix="gputopo-queue-") as folder:
            rows.append(asyncio.run(_measure(Path(folder), binaries, load, way, number)))
    return {
        "rows": [asdict(row) for row in rows],
        "ratios": compare(rows),
        "conditions": {
            "scheduler_client": dict(CLIENT_LIMITS),
            "planner_writes_at_once": AT_ONCE,
            "pods_created_at_once": CREATED_AT_ONCE,
            "pods_created_per_second": load.per_second or None,
        },
        "kubernetes": kubernetes_version(binaries),
        "machine": machine,
    }


def compare(rows: Sequence[QueueBurstRow]) -> list[dict[str, Any]]:
    """Return how many times as fast the queue was, round by round, and how many times as long its pods waited."""
    by_way = {way: sorted((row for row in rows if row.extender is way), key=lambda row: row.round) for way in BurstWay}
    ratios = list[dict[str, Any]]()
    for ours, other in COMPARED:
        if pairs := [*zip(by_way[ours], by_way[other], strict=False)]:
            rates = spread([a.pods_per_second / b.pods_per_second for a, b in pairs])
            means = spread([a.created_to_bound_mean_seconds / b.created_to_bound_mean_seconds for a, b in pairs])
            p99s = spread([a.created_to_bound_p99_seconds / b.created_to_bound_p99_seconds for a, b in pairs])
            waits = {"created_to_bound_mean": means["median"], "created_to_bound_p99": p99s["median"]}
            ratios.append({"of": ours, "to": other, **rates, **waits})
    return ratios


def as_text(measured: dict[str, Any]) -> str:
    """Return rows and ratios as lines."""
    lines = [_line(row) for row in measured["rows"]]
    lines += [
        f"{ratio['of']} / {ratio['to']}: {ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f}), "
        f"created -> bound {ratio['created_to_bound_mean']:.2f}, p99 {ratio['created_to_bound_p99']:.2f}"
        for ratio in measured["ratios"]
    ]
    limits = measured["conditions"]["scheduler_client"]
    return "\n".join(
        [*lines, f"Kubernetes {measured['kubernetes']}; kube-scheduler's client: {limits['qps']} requests/s"]
    )


def _line(row: dict[str, Any]) -> str:
    mean, p99 = row["created_to_bound_mean_seconds"], row["created_to_bound_p99_seconds"]
    planner = row["planner_cpu_ms_per_pod"]
    of_planner = "" if planner is None else f"{planner:8.1f} ms of the planner's CPU per pod"
    return (
        f"{row['extender']:<20}{row['pods_per_second']:8.1f} pods/s   created -> bound {mean:.2f} s, p99 {p99:.2f} s"
        f"   load {row['load']:.1f}{of_planner}"
    )


async def _measure(folder: Path, binaries: Path, load: QueueBurstLoad, way: BurstWay, number: int) -> QueueBurstRow:
    configuration = {"percentageOfNodesToScore": way.percentage_of_nodes_to_score}
    spec: dict[str, Any] = {"schedulingGates": [GATE]} if way.is_planned else {}
    waiting = load.waiting if way in (BurstWay.BESIDE_WAITING, BurstWay.BESIDE_GATED) else 0
    async with (
        running_control_plane(binaries, folder) as plane,
        ApiClient.from_kubeconfig(plane.kubeconfig) as api,
    ):
        await join(api, mixed_fleet(load.nodes))
        await _create_waiting(api, waiting, GATE if way is BurstWay.BESIDE_WAITING else _OTHER_GATE)
        async with (
            running_planner(plane, api) if way.is_planned else nullcontext() as planner,
            running_scheduler(plane, configuration) as scheduler,
        ):
            machine_load = os.getloadavg()[0]
            ours, theirs = planner.process.cpu_seconds() if planner else 0.0, scheduler.cpu_seconds()
            looking, began = asyncio.create_task(until_bound(api, load.pods, scheduler)), time.perf_counter()
            created = await create_pods(api, load.pods, per_second=load.per_second, **spec)
            bound = await looking
            ours = planner.process.cpu_seconds() - ours if planner else 0.0
            theirs = scheduler.cpu_seconds() - theirs
    seconds = max(bound.values()) - began
    waits = [bound[name] - since for name, since in created.items()]
    return QueueBurstRow(
        number,
        way,
        load.nodes,
        load.pods,
        waiting,
        way.percentage_of_nodes_to_score,
        round(seconds, 2),
        round(load.pods / seconds, 1),
        round(statistics.mean(waits), 3),
        round(percentile(waits, 50), 3),
        round(percentile(waits, 99), 3),
        round(1000 * ours / load.pods, 2) if planner else None,
        round(1000 * theirs / load.pods, 2),
        round(machine_load, 1),
    )


async def _create_waiting(api: ApiClient, pods: int, gate: Json) -> None:
    """Create pods in a namespace of their own that no node can take."""
    (await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": _TENANT}})).ok()

    async def create_one(number: int) -> None:
        pod = gpu_pod(f"waiting-{number}", 8, {keys.MIN_BANDWIDTH: "1000000"}, schedulingGates=[gate])
        (await api.call("POST", f"/api/v1/namespaces/{_TENANT}/pods", pod)).ok()

    await for_all(range(pods), create_one, CREATED_AT_ONCE)
