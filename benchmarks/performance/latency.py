"""`gputopo-bench latency`: how long the verbs take over HTTP, beside the floor of a handler that only echoes the names.

The extender is the real process, its caches are filled from an API double, and the calls come one after another on one
connection, as kube-scheduler makes them: for each pod filter, prioritize, bind. The floor gets the same bodies in the same run.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.console import Console
from rich.progress import Progress

from benchmarks.performance.machine import describe_machine
from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.echo import running_echo
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import Store
from benchmarks.simulated.fleet import POD_SIZES, check_capacity, gpu_pod, join, mixed_fleet

_WARM_UP = 30
FILTER, PRIORITIZE, BIND = "filter", "prioritize", "bind"
FLOOR, GPUTOPO, ALL_NAMES = "floor", "gputopo", "gputopo, all names"
"""`prioritize` normally gets the candidates of `filter`; the floor gets all names, and so do we once more."""


def measure(nodes: int, pods: int, candidates: int) -> dict[str, Any]:
    """Return rows of p50 and p99 per verb and server, and the p50 of what the server computes, each beside the floor's.

    Raises `TooFewGpus` and `NotReady`.
    """
    check_capacity(nodes, _WARM_UP + pods)
    machine = describe_machine()
    end_in_order_on_signals()
    with tempfile.TemporaryDirectory(prefix="gputopo-latency-") as folder:
        samples = asyncio.run(_measure(Path(folder), nodes, pods, candidates))
    return {"rows": _rows(samples, nodes), "candidates": candidates, "machine": machine}


def as_text(found: dict[str, Any]) -> str:
    """Return the rows as lines; in brackets how many times the floor it is."""
    lines = [f"{row['server']:<20}{row['verb']:<10}{_cells(row)}" for row in found["rows"]]
    return "\n".join([*lines, f"in brackets: times the floor; load {found['machine']['load']}"])


@dataclass(frozen=True, slots=True)
class Sample:
    """One call."""

    milliseconds: float
    """As the caller sees it: what else the machine does counts."""
    cpu_ms: float
    """What the server's event loop computed meanwhile."""


Samples = dict[tuple[str, str], list[Sample]]


async def _measure(folder: Path, nodes: int, pods: int, candidates: int) -> Samples:
    kubeconfig = folder / "kubeconfig"
    simulated = mixed_fleet(nodes)
    settings = {"scheduling": {"candidates": candidates}}
    async with ApiServer(Store()) as server, ApiClient(server.url) as api:
        write_kubeconfig(kubeconfig, server.url)
        await join(api, simulated)
        async with running_extender(kubeconfig, folder, settings) as extender, running_echo(folder) as floor:
            return await _call_all(api, extender, floor, [node.name for node in simulated], pods)


async def _call_all(
    api: ApiClient, ours: RunningExtender, floor: RunningExtender, names: list[str], pods: int
) -> Samples:
    samples: Samples = {}
    async with aiohttp.ClientSession() as session:

        async def call(server: str, verb: str, body: Json) -> Any:
            asked = floor if server == FLOOR else ours
            content = msgspec.json.encode(body)
            computed, begun = asked.process.main_thread_cpu_ms(), time.perf_counter()
            async with session.post(f"{asked.url}/v1/extender/{verb}", data=content) as response:
                answer = await response.read()
                milliseconds = 1000 * (time.perf_counter() - begun)
                if response.status != 200:
                    raise RuntimeError(f"{verb}: {response.status} {answer[:200]!r}")
            cpu_ms = asked.process.main_thread_cpu_ms() - computed
            samples.setdefault((server, verb), []).append(Sample(milliseconds, cpu_ms))
            return msgspec.json.decode(answer)

        with Progress(console=Console(stderr=True), transient=True) as progress:
            for number in progress.track(range(_WARM_UP + pods), description="pods"):
                if number == _WARM_UP:
                    samples.clear()
                await _one_pod(api, call, names, number)
    return samples


async def _one_pod(api: ApiClient, call: Any, names: list[str], number: int) -> None:
    spec = gpu_pod(f"pod-{number}", POD_SIZES[number % len(POD_SIZES)], schedulerName="gputopo")
    pod = (await api.call("POST", "/api/v1/namespaces/default/pods", spec)).ok()
    everywhere = {"Pod": pod, "Nodes": None, "NodeNames": names}
    await call(FLOOR, FILTER, everywhere)
    fitting = (await call(GPUTOPO, FILTER, everywhere))["NodeNames"]
    await call(FLOOR, PRIORITIZE, everywhere)
    await call(ALL_NAMES, PRIORITIZE, everywhere)
    scores = await call(GPUTOPO, PRIORITIZE, {**everywhere, "NodeNames": fitting})
    best = max(scores, key=lambda entry: entry["Score"])["Host"]
    identity = pod["metadata"]
    who = {"PodName": identity["name"], "PodNamespace": identity["namespace"], "PodUID": identity["uid"]}
    outcome = await call(GPUTOPO, BIND, {**who, "Node": best})
    if outcome.get("Error"):
        raise RuntimeError(outcome["Error"])


def _rows(samples: Samples, nodes: int) -> list[dict[str, Any]]:
    rows = []
    for (server, verb), calls in sorted(samples.items()):
        row: dict[str, Any] = {"server": server, "verb": verb, "nodes": nodes, "calls": len(calls)}
        figures = _figures(calls)
        row |= {f"{name}_ms": round(figure, 3) for name, figure in figures.items()}
        if server != FLOOR and (FLOOR, verb) in samples:
            floor = _figures(samples[FLOOR, verb])
            row |= {f"{name}_to_floor": round(figure / floor[name], 2) for name, figure in figures.items()}
        rows.append(row)
    return rows


def _figures(calls: list[Sample]) -> dict[str, float]:
    """Return what is told of the calls of one verb to one server, in milliseconds."""
    seen = [call.milliseconds for call in calls]
    return {
        "p50": _percentile(seen, 50),
        "p99": _percentile(seen, 99),
        "p50_cpu": _percentile([call.cpu_ms for call in calls], 50),
    }


def _percentile(figures: list[float], percent: int) -> float:
    ordered = sorted(figures)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _cells(row: dict[str, Any]) -> str:
    return "".join(
        f"{name.replace('_cpu', ' CPU'):>9} {row[f'{name}_ms']:7.3f} ms" + (f" ({ratio:.2f})" if ratio else " " * 7)
        for name in ("p50", "p99", "p50_cpu")
        for ratio in [row.get(f"{name}_to_floor")]
    )
