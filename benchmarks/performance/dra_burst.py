"""`gputopo-bench scheduler --dra`: a burst of pods with ResourceClaims through kube-scheduler alone, and planned.

The claims of `dra-plain` are of NVIDIA's class: kube-scheduler allocates them. Those of `dra-planned` are of ours: the extender
allocates them and opens the pods' gates, and kube-scheduler keeps to that. A real controller makes the claims from templates
in both; no limit of its client holds it back. All programs share the machine. The time counts from the first pod's creation to
the last Binding, so the claims' creation counts, too.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from benchmarks.performance.burst import CREATED_AT_ONCE, alternating, create_pods, spread, until_bound
from benchmarks.performance.machine import describe_machine
from benchmarks.performance.verbs import percentile
from benchmarks.processes.client import ApiClient
from benchmarks.processes.control_plane import running_control_plane, running_controllers, running_scheduler
from benchmarks.processes.kube_binaries import check_controllers, kubernetes_version
from benchmarks.processes.kube_settings import CLIENT_LIMITS
from benchmarks.processes.planner import GATE, running_planner
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.devices import (
    DRIVER,
    PLANNED_CLASS,
    claiming_pod,
    create_templates,
    devices_of_claims,
    given_twice,
    publish_devices,
    reserve_class,
)
from benchmarks.simulated.fleet import POD_SIZES, check_capacity, join, mixed_fleet

CONTROLLERS: Final = "resourceclaim-controller,garbage-collector-controller"
SETTINGS: Final = {"dra": {"enabled": True}}
ALLOCATES: Final = "gputopo_dra_guarded 1"
"""What a page of metrics says once the extender allocates claims."""


class DraWay(StrEnum):
    """Who allocates claims."""

    PLAIN = "dra-plain"
    PLANNED = "dra-planned"


@dataclass(frozen=True, slots=True)
class DraBurstRow:
    """One measurement."""

    round: int
    extender: DraWay
    nodes: int
    pods: int
    seconds: float
    """From the first pod's creation to the last Binding."""
    pods_per_second: float
    created_to_bound_p50_seconds: float
    created_to_bound_p99_seconds: float
    planner_cpu_ms_per_pod: float | None
    scheduler_cpu_ms_per_pod: float
    controllers_cpu_ms_per_pod: float
    devices_given_twice: int
    load: float
    """Of the machine, over the minute before."""


def measure(nodes: int, pods: int, rounds: int, binaries: Path) -> dict[str, Any]:
    """Return a row for each way and round, and the ratios; raises `TooFewGpus`, `NotReady`, `Stalled`, `BinariesMissing`."""
    check_capacity(nodes, pods)
    check_controllers(binaries)
    machine = describe_machine()
    end_in_order_on_signals()
    rows = []
    for number, way in alternating([*DraWay], rounds, str):
        with tempfile.TemporaryDirectory(prefix="gputopo-dra-") as folder:
            rows.append(asyncio.run(_measure(Path(folder), binaries, nodes, pods, way, number)))
    return {
        "rows": [asdict(row) for row in rows],
        "ratios": [compare(rows)],
        "conditions": {"clients": dict(CLIENT_LIMITS), "pods_created_at_once": CREATED_AT_ONCE},
        "kubernetes": kubernetes_version(binaries),
        "machine": machine,
    }


def compare(rows: Sequence[DraBurstRow]) -> dict[str, Any]:
    """Return the pods per second of planned claims, of those of plain ones, round by round."""
    planned, plain = (
        {row.round: row.pods_per_second for row in rows if row.extender is way}
        for way in (DraWay.PLANNED, DraWay.PLAIN)
    )
    ratios = spread([rate / plain[number] for number, rate in planned.items()])
    return {"of": DraWay.PLANNED, "to": DraWay.PLAIN, **ratios}


def as_text(measured: dict[str, Any]) -> str:
    """Return rows and ratios as lines."""
    lines = [_line(row) for row in measured["rows"]]
    lines += [
        f"{ratio['of']} / {ratio['to']}: {ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"
        for ratio in measured["ratios"]
    ]
    return "\n".join([*lines, f"Kubernetes {measured['kubernetes']}"])


def _line(row: dict[str, Any]) -> str:
    p50, p99, planner = (
        row[name] for name in ("created_to_bound_p50_seconds", "created_to_bound_p99_seconds", "planner_cpu_ms_per_pod")
    )
    of_planner = "" if planner is None else f"{planner:8.1f} ms of the planner's CPU per pod"
    return (
        f"{row['extender']:<14}{row['pods_per_second']:8.1f} pods/s   created -> bound {p50:.2f} s, p99 {p99:.2f} s"
        f"   devices given twice {row['devices_given_twice']}   load {row['load']:.1f}{of_planner}"
    )


async def _measure(folder: Path, binaries: Path, nodes: int, pods: int, way: DraWay, number: int) -> DraBurstRow:
    is_planned = way is DraWay.PLANNED
    spec: dict[str, Any] = {"schedulingGates": [GATE]} if is_planned else {}
    machines = [replace(node, has_plugin=False) for node in mixed_fleet(nodes)]
    async with (
        running_control_plane(binaries, folder) as plane,
        ApiClient.from_kubeconfig(plane.kubeconfig) as api,
        running_controllers(plane, CONTROLLERS) as controllers,
    ):
        await join(api, machines)
        await publish_devices(api, machines)
        if is_planned:
            await reserve_class(api)
        await create_templates(api, PLANNED_CLASS if is_planned else DRIVER, POD_SIZES)
        async with (
            running_planner(plane, api, SETTINGS, ALLOCATES) if is_planned else nullcontext() as planner,
            running_scheduler(plane, {}) as scheduler,
        ):
            load, programs = os.getloadavg()[0], [scheduler, controllers, *([planner.process] if planner else [])]
            before = [program.cpu_seconds() for program in programs]
            looking, began = asyncio.create_task(until_bound(api, pods, scheduler)), time.perf_counter()
            created = await create_pods(api, pods, claiming_pod, **spec)
            bound = await looking
            computed = [
                round(1000 * (program.cpu_seconds() - earlier) / pods, 2)
                for program, earlier in zip(programs, before, strict=True)
            ]
            devices = await devices_of_claims(api)
    waits = [bound[name] - since for name, since in created.items()]
    seconds = max(bound.values()) - began
    return DraBurstRow(
        number,
        way,
        nodes,
        pods,
        round(seconds, 2),
        round(pods / seconds, 1),
        round(percentile(waits, 50), 3),
        round(percentile(waits, 99), 3),
        computed[2] if is_planned else None,
        computed[0],
        computed[1],
        given_twice(devices),
        round(load, 1),
    )
