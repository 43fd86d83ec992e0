"""`gputopo-bench latency`: how long the verbs take over HTTP, beside the floor of a handler that only echoes the names.

The extender is the real process, its caches are filled from an API double, and the calls come one after another on one
connection, as kube-scheduler makes them: for each pod filter, prioritize, bind. The floor gets the same bodies in the same run.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
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
from benchmarks.simulated.fleet import POD_SIZES, SimulatedNode, check_capacity, gpu_pod, join, mixed_fleet, share_pod

_WARM_UP = 30
_PLAIN, _SHARED = "plain", "shared"
"""Folders of the fleets."""
FILTER, PRIORITIZE, BIND = "filter", "prioritize", "bind"
FLOOR, GPUTOPO, ALL_NAMES = "floor", "gputopo", "gputopo, all names"
"""`prioritize` normally gets the candidates of `filter`; the floor gets all names, and so do we once more."""
SHARED, A_SHARE = "half shared", "half shared, 8 GiB"
"""Another extender, for which pods share GPUs of every second node: what its filter takes for the same pods, and for a share."""


def measure(nodes: int, pods: int, candidates: int, *, shared: bool = False) -> dict[str, Any]:
    """Return rows of p50 and p99 per verb and server, and the p50 of what the server computes, each beside the floor's.

    `shared`: the filter of another extender too, for which half of the nodes are shared. Raises `TooFewGpus` and `NotReady`.
    """
    check_capacity(nodes, _WARM_UP + pods)
    machine = describe_machine()
    end_in_order_on_signals()
    with tempfile.TemporaryDirectory(prefix="gputopo-latency-") as folder:
        for fleet in (_PLAIN, _SHARED):
            (Path(folder) / fleet).mkdir()
        samples = asyncio.run(_measure(Path(folder), nodes, pods, candidates, shared=shared))
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


async def _measure(folder: Path, nodes: int, pods: int, candidates: int, *, shared: bool) -> Samples:
    simulated = mixed_fleet(nodes)
    settings = {"scheduling": {"candidates": candidates}}
    async with AsyncExitStack() as stack:
        ours = [await stack.enter_async_context(_fleet_of(folder / _PLAIN, simulated, settings))]
        if shared:
            half = [
                replace(node, shared_gpus=8, shared_gib=place % 20 + 1) if place % 2 else node
                for place, node in enumerate(simulated)
            ]
            ours.append(await stack.enter_async_context(_fleet_of(folder / _SHARED, half, settings)))
        floor = await stack.enter_async_context(running_echo(folder))
        return await _call_all(ours, floor, [node.name for node in simulated], pods)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Simulated nodes, and the extender that knows them."""

    api: ApiClient
    extender: RunningExtender


@asynccontextmanager
async def _fleet_of(folder: Path, nodes: Sequence[SimulatedNode], settings: dict[str, Any]) -> AsyncIterator[_Fleet]:
    kubeconfig = folder / "kubeconfig"
    async with ApiServer(Store()) as server, ApiClient(server.url) as api:
        write_kubeconfig(kubeconfig, server.url)
        await join(api, nodes)
        async with running_extender(kubeconfig, folder, settings) as extender:
            yield _Fleet(api, extender)


async def _call_all(ours: Sequence[_Fleet], floor: RunningExtender, names: list[str], pods: int) -> Samples:
    samples: Samples = {}
    async with aiohttp.ClientSession() as session:

        async def call(server: str, verb: str, body: Json) -> Any:
            asked = floor if server == FLOOR else ours[server in (SHARED, A_SHARE)].extender
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
                await _one_pod(ours[0].api, call, names, number)
                for fleet in ours[1:]:
                    await _one_pod_beside_shares(fleet.api, call, names, number)
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


async def _one_pod_beside_shares(api: ApiClient, call: Any, names: list[str], number: int) -> None:
    """Filter the same pod, and bind it to the node that came first; and filter a share."""
    whole = gpu_pod(f"pod-{number}", POD_SIZES[number % len(POD_SIZES)], schedulerName="gputopo")
    pod = (await api.call("POST", "/api/v1/namespaces/default/pods", whole)).ok()
    fitting = (await call(SHARED, FILTER, {"Pod": pod, "Nodes": None, "NodeNames": names}))["NodeNames"]
    identity = pod["metadata"]
    who = {"PodName": identity["name"], "PodNamespace": identity["namespace"], "PodUID": identity["uid"]}
    outcome = await call(SHARED, BIND, {**who, "Node": fitting[0]})
    if outcome.get("Error"):
        raise RuntimeError(outcome["Error"])
    path = "/api/v1/namespaces/default/pods"
    share = (await api.call("POST", path, share_pod(f"share-{number}", 8, schedulerName="gputopo"))).ok()
    found = await call(A_SHARE, FILTER, {"Pod": share, "Nodes": None, "NodeNames": names})
    if not found.get("NodeNames"):
        raise RuntimeError(f"no node takes a share: {found}"[:600])
    await api.call("DELETE", f"{path}/share-{number}")


def _rows(samples: Samples, nodes: int) -> list[dict[str, Any]]:
    rows = []
    for (server, verb), calls in sorted(samples.items()):
        row: dict[str, Any] = {"server": server, "verb": verb, "nodes": nodes, "calls": len(calls)}
        figures = _figures(calls)
        row |= {f"{name}_ms": round(figure, 3) for name, figure in figures.items()}
        if server != FLOOR and (FLOOR, verb) in samples:
            floor = _figures(samples[FLOOR, verb])
            row |= {f"{name}_to_floor": round(figure / floor[name], 2) for name, figure in figures.items()}
        if server in (SHARED, A_SHARE) and verb == FILTER:
            plain = _figures(samples[GPUTOPO, FILTER])
            row |= {f"{name}_to_plain": round(figure / plain[name], 2) for name, figure in figures.items()}
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
