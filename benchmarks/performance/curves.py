"""`gputopo-bench curves`: how what the extender costs grows with nodes, pods, kinds of machines, GPUs of a node, waiting pods.

Each point is an extender of its own beside a cluster in an API double, to which some pods come. Counted are CPU and memory, which
other programs on the machine stretch less than time. To each cost of a curve an exponent is fitted: 1 is linear, 0 does not grow.
"""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.performance.machine import describe_machine
from benchmarks.performance.state import populate
from benchmarks.performance.verbs import BIND, FILTER, PRIORITIZE, about, ask, binding, create, percentile
from benchmarks.processes.client import ApiClient
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.double.resources import PODS
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, fleet, gpu_pod, mixed_fleet
from topology.formats.catalog import machine
from topology.node.model import NodeTopology

_ASKED = 20
"""Pods whose verbs are measured at each point; as many more come before."""
_GPUS = 2
_NODES = 1000
"""Where something else grows."""
_MIB = 1 << 20
_KINDS = (
    "hgx-h100", "dgx-1v", "dgx-a100", "l40s-8", "a100-pcie-8-pairs", "hgx-h200", "hgx-b200", "hgx-h800",
    "h100-nvl-8-pairs", "l4-8", "rtx-4090-8", "dgx-1p", "dgx-2", "v100-sxm2-4", "a100-sxm4-4", "h100-sxm5-4",
)  # fmt: skip
COSTS = ("start_cpu_seconds", "resident_mib", "filter_cpu_ms", "prioritize_cpu_ms", "bind_cpu_ms")


class GrowthAxis(StrEnum):
    """What grows."""

    NODES = "nodes"
    PODS = "pods"
    KINDS = "kinds"
    GPUS = "gpus"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What an extender finds."""

    nodes: tuple[SimulatedNode, ...]
    running: int = 0
    waiting: int = 0


class _Wide(SimulatedNode):
    """A node of many GPUs on one NVSwitch fabric, two to a NUMA node as in a GB200 rack; not in the catalogue."""

    @property
    def topology(self) -> NodeTopology:
        count = int(self.machine)
        one = machine("hgx-h200", host=self.name).gpus[0]
        gpus = tuple(
            replace(
                one, index=index, uuid=f"{one.uuid[:-4]}{index:04d}", pci=f"{index:08x}:01:00.0", numa_node=index // 2
            )
            for index in range(count)
        )
        return NodeTopology(gpus, driver_version="570.124.06", cuda_version="12.8")


def _wide_fleet(gpus: int) -> tuple[SimulatedNode, ...]:
    return tuple(_Wide(f"wide-{number}", str(gpus), cpus=512, memory_gib=4096) for number in range(_NODES // 10))


_CLUSTERS: dict[GrowthAxis, Callable[[int], _Cluster]] = {
    GrowthAxis.NODES: lambda x: _Cluster(mixed_fleet(x)),
    GrowthAxis.PODS: lambda x: _Cluster(mixed_fleet(_NODES), running=x),
    GrowthAxis.KINDS: lambda x: _Cluster(fleet(dict.fromkeys(_KINDS[:x], _NODES // x))),
    GrowthAxis.GPUS: lambda x: _Cluster(_wide_fleet(x)),
    GrowthAxis.WAITING: lambda x: _Cluster(mixed_fleet(_NODES), waiting=x),
}
POINTS: dict[GrowthAxis, tuple[int, ...]] = {
    GrowthAxis.NODES: (1000, 2000, 5000, 10_000, 20_000),
    GrowthAxis.PODS: (5000, 10_000, 20_000, 50_000),
    GrowthAxis.KINDS: (1, 4, 16),
    GrowthAxis.GPUS: (8, 16, 32, 72),
    GrowthAxis.WAITING: (100, 1000, 5000),
}
"""Where each is measured, unless somebody says otherwise."""


def measure(points: dict[GrowthAxis, tuple[int, ...]]) -> dict[str, Any]:
    """Return a row for each point of each curve, and for each cost the exponent with which it grows; raises `NotReady`."""
    described = describe_machine()
    end_in_order_on_signals()
    rows = []
    for curve, places in points.items():
        for place in places:
            print(f"{curve}: {place:,}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="gputopo-curves-") as folder:
                figures = asyncio.run(_measure(Path(folder), _CLUSTERS[curve](place)))
            rows.append({"curve": curve.value, "x": place, **figures})
    fits = [fit for curve in points for fit in fitted([row for row in rows if row["curve"] == curve])]
    return {"rows": rows, "fits": fits, "machine": described}


def fitted(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return with what power of x each cost of one curve grows, and what one more costs between the last two points.

    >>> [fit] = fitted([{"curve": "nodes", "x": x, "filter_cpu_ms": 0.002 * x} for x in (10, 100, 1000)])
    >>> fit["exponent"], fit["each_more"]
    (1.0, 0.002)
    """
    if len(rows) < 2:
        return []
    return [
        {
            "curve": rows[0]["curve"],
            "cost": cost,
            "exponent": round(_slope([(math.log(row["x"]), math.log(row[cost])) for row in rows]), 2),
            "each_more": round((rows[-1][cost] - rows[-2][cost]) / (rows[-1]["x"] - rows[-2]["x"]), 6),
        }
        for cost in COSTS
        if cost in rows[0]
    ]


def as_text(found: dict[str, Any]) -> str:
    """Return a table for each curve, its exponents below."""
    lines = []
    for curve in dict.fromkeys(row["curve"] for row in found["rows"]):
        lines.append(f"{curve:<12}" + "".join(f"{cost:>20}" for cost in COSTS))
        rows = [row for row in found["rows"] if row["curve"] == curve]
        lines += [f"{row['x']:<12,}" + "".join(f"{row[cost]:>20,.3f}" for cost in COSTS) for row in rows]
        exponents = {fit["cost"]: fit["exponent"] for fit in found["fits"] if fit["curve"] == curve}
        if exponents:
            lines.append(f"{'exponent':<12}" + "".join(f"{exponents[cost]:>20.2f}" for cost in COSTS))
    return "\n".join([*lines, f"load {found['machine']['load']} at the beginning"])


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line that is nearest to the points."""
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    above = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return above / sum((x - middle_x) ** 2 for x, _ in points)


async def _measure(folder: Path, cluster: _Cluster) -> dict[str, Any]:
    store, kubeconfig = ObjectStore(), folder / "kubeconfig"
    populate(store, cluster.nodes, cluster.running)
    for number in range(cluster.waiting):
        store.create(PODS, "default", gpu_pod(f"waiting-{number}", _GPUS, schedulerName="gputopo"))
    async with ApiServer(store) as server, ApiClient(server.url) as api:
        write_kubeconfig(kubeconfig, server.url)
        async with running_extender(kubeconfig, folder) as extender:
            computed, resident = extender.process.cpu_seconds(), extender.process.memory_bytes()
            verbs = await _ask(api, extender, [node.name for node in cluster.nodes])
    return {"start_cpu_seconds": computed, "resident_mib": round(resident / _MIB, 1), **verbs}


async def _ask(api: ApiClient, extender: RunningExtender, names: list[str]) -> dict[str, float]:
    """Bring some pods to their nodes, and return what the later half of them cost."""
    cpu: dict[str, list[float]] = {FILTER: [], PRIORITIZE: [], BIND: []}
    async with aiohttp.ClientSession() as session:
        for number in range(2 * _ASKED):
            pod = await create(api, gpu_pod(f"asked-{number}", _GPUS, schedulerName="gputopo"))
            fitting, filtered = await ask(session, extender, FILTER, about(pod, names))
            scores, prioritized = await ask(session, extender, PRIORITIZE, about(pod, fitting["NodeNames"]))
            best = max(scores, key=lambda entry: entry["Score"])["Host"]
            _, bound = await ask(session, extender, BIND, binding(pod, best))
            for verb, sample in ((FILTER, filtered), (PRIORITIZE, prioritized), (BIND, bound)):
                cpu[verb].append(sample.cpu_ms)
    return {f"{verb}_cpu_ms": round(percentile(of_verb[_ASKED:], 50), 3) for verb, of_verb in cpu.items()}
