"""`gputopo-bench scheduler --start-gangs 4x750`: gangs per second through the queue, and through core's gang scheduling.

No kube-scheduler here knows an extender; both have core's gates on. The gangs of `core` are PodGroups. Those of the queue have
our annotations and our gate. All fit on the empty nodes at once. Each way has a control plane of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.performance.burst import CREATED_AT_ONCE, alternating, spread, until_bound
from benchmarks.performance.machine import describe_machine
from benchmarks.performance.verbs import create
from benchmarks.performance.waiting_gangs import check_pod_groups
from benchmarks.processes import pod_groups
from benchmarks.processes.client import ApiClient, Json, for_all
from benchmarks.processes.control_plane import running_control_plane, running_scheduler
from benchmarks.processes.planner import GATE, running_planner
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.fleet import TooFewGpus, gpu_pod, join, mixed_fleet
from topology.annotations import keys

_GPUS_OF_NODE: Final = 8
_MOST_PODS: Final = 100_000
_STALLED_AFTER_SECONDS: Final = 600.0
"""No pod of a gang of hundreds is bound before all of them have a place."""


class BadShape(Exception):
    """A shape of gangs that cannot be read."""


class GangStarter(StrEnum):
    """Who starts gangs whole."""

    CORE = "core"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class GangShape:
    """So many gangs of so many pods, with one GPU each."""

    gangs: int
    pods: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `4x750`: 750 gangs of four pods; raises `BadShape`."""
        match = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})", text)
        shape = cls(int(match[2]), int(match[1])) if match else None
        if shape is None or shape.pods < 2 or shape.all_pods > _MOST_PODS:
            raise BadShape(
                f"{text}: not PODSxGANGS such as 4x750, with at least 2 pods a gang and together at most {_MOST_PODS}"
            )
        return shape

    @property
    def all_pods(self) -> int:
        """Those of all gangs together."""
        return self.gangs * self.pods


@dataclass(frozen=True, slots=True)
class GangStartsRow:
    """One measurement."""

    round: int
    by: GangStarter
    gangs: int
    pods_of_gang: int
    nodes: int
    seconds: float
    """From the first pod's creation to the last Binding."""
    gangs_per_second: float
    pods_per_second: float
    longest_start_seconds: float
    """Of a gang, from its first Binding to its last."""
    load: float
    """Of the machine, over the minute before."""


def measure(nodes: int, shape: GangShape, rounds: int, binaries: Path) -> dict[str, Any]:
    """Return a row for each way and round; raises `TooFewGpus`, `NotReady`, `Stalled`, `WithoutPodGroups`."""
    kubernetes = check_pod_groups(binaries)
    if shape.all_pods > _GPUS_OF_NODE * nodes:
        raise TooFewGpus(f"{shape.all_pods} pods ask for more GPUs than {nodes} nodes have")
    machine = describe_machine()
    end_in_order_on_signals()
    rows = []
    for number, way in alternating([*GangStarter], rounds, str):
        with tempfile.TemporaryDirectory(prefix="gputopo-gangs-") as folder:
            rows.append(asyncio.run(_measure(Path(folder), binaries, nodes, shape, way, number)))
    return {
        "rows": [asdict(row) for row in rows],
        "ratio": compare(rows),
        "kubernetes": kubernetes,
        "machine": machine,
    }


def compare(rows: Sequence[GangStartsRow]) -> dict[str, float]:
    """Return the gangs per second of the queue, of those of core, round by round."""
    ours, core = (
        {row.round: row.gangs_per_second for row in rows if row.by is way}
        for way in (GangStarter.QUEUE, GangStarter.CORE)
    )
    return spread([rate / core[number] for number, rate in ours.items()])


def as_text(measured: dict[str, Any]) -> str:
    """Return rows and ratio as lines."""
    lines = [
        f"{row['by']:<8}{row['gangs_per_second']:8.3f} gangs/s{row['pods_per_second']:8.1f} pods/s"
        f"   a gang starts within {row['longest_start_seconds']:.2f} s   load {row['load']:.1f}"
        for row in measured["rows"]
    ]
    ratio = measured["ratio"]
    lines.append(f"queue / core: {ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})")
    return "\n".join([*lines, f"Kubernetes {measured['kubernetes']}"])


async def _measure(
    folder: Path, binaries: Path, nodes: int, shape: GangShape, way: GangStarter, number: int
) -> GangStartsRow:
    async with (
        running_control_plane(binaries, folder, pod_groups.APISERVER_FLAGS) as plane,
        ApiClient.from_kubeconfig(plane.kubeconfig) as api,
    ):
        await join(api, mixed_fleet(nodes))
        configuration = {"percentageOfNodesToScore": 100}
        async with (
            running_planner(plane, api) if way is GangStarter.QUEUE else nullcontext(),
            running_scheduler(plane, configuration, pod_groups.SCHEDULER_FLAGS) as scheduler,
        ):
            load = os.getloadavg()[0]
            looking = asyncio.create_task(until_bound(api, shape.all_pods, scheduler, _STALLED_AFTER_SECONDS))
            began = time.perf_counter()
            await _create(api, shape, way)
            bound = await looking
    seconds = max(bound.values()) - began
    times = [[bound[_name(gang, pod)] for pod in range(shape.pods)] for gang in range(shape.gangs)]
    return GangStartsRow(
        number,
        way,
        shape.gangs,
        shape.pods,
        nodes,
        round(seconds, 2),
        round(shape.gangs / seconds, 5),
        round(shape.all_pods / seconds, 1),
        round(max(max(of_gang) - min(of_gang) for of_gang in times), 2),
        round(load, 1),
    )


async def _create(api: ApiClient, shape: GangShape, way: GangStarter) -> None:
    """Create the gangs, one after the other, and the pods of each many at once."""
    for gang in range(shape.gangs):
        if way is GangStarter.CORE:
            group = pod_groups.pod_group(f"gang-{gang}", shape.pods)
            (await api.call("POST", pod_groups.POD_GROUPS, group)).ok()
        pods = [_pod(shape, way, gang, pod) for pod in range(shape.pods)]
        await for_all(pods, lambda pod: create(api, pod), CREATED_AT_ONCE)


def _pod(shape: GangShape, way: GangStarter, gang: int, pod: int) -> Json:
    match way:
        case GangStarter.CORE:
            return pod_groups.member(gpu_pod(_name(gang, pod), 1), f"gang-{gang}")
        case GangStarter.QUEUE:
            wants = {keys.GROUP: f"gang-{gang}", keys.GROUP_SIZE: str(shape.pods), keys.GANG: "required"}
            return gpu_pod(_name(gang, pod), 1, wants, schedulingGates=[GATE])


def _name(gang: int, pod: int) -> str:
    return f"gang-{gang}-{pod}"
