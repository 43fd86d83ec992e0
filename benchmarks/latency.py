"""`gputopo-bench latency`: how long the verbs take over HTTP, beside the floor of a handler that only echoes the names.

The extender is the real process, its caches are filled from an API double, and the calls come one after another on one
connection, as kube-scheduler makes them: for each pod filter, prioritize, bind. The floor gets the same bodies in the same run.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.console import Console
from rich.progress import Progress

from benchmarks.client import ApiClient, Json
from benchmarks.double.server import ApiServer, write_kubeconfig
from benchmarks.double.store import Store
from benchmarks.echo import running_echo
from benchmarks.extender_process import running_extender
from benchmarks.fleet import POD_SIZES, check_room, gpu_pod, join, mixed_fleet
from benchmarks.machine import describe_machine
from benchmarks.process import end_in_order_on_signals

_WARM_UP = 30
_PERCENTILES = (50, 99)
FILTER, PRIORITIZE, BIND = "filter", "prioritize", "bind"
FLOOR, GPUTOPO, ALL_NAMES = "floor", "gputopo", "gputopo, all names"
"""`prioritize` normally gets the candidates of `filter`; the floor gets all names, and so do we once more."""


def measure(nodes: int, pods: int, candidates: int) -> dict[str, Any]:
    """Return rows of p50 and p99 per verb and server, in milliseconds, each with its ratio to the floor's.

    Raises `TooFewGpus` and `NotReady`.
    """
    check_room(nodes, _WARM_UP + pods)
    machine = describe_machine()
    end_in_order_on_signals()
    with tempfile.TemporaryDirectory(prefix="gputopo-latency-") as folder:
        samples = asyncio.run(_measure(Path(folder), nodes, pods, candidates))
    return {"rows": _rows(samples, nodes), "candidates": candidates, "machine": machine}


def as_text(found: dict[str, Any]) -> str:
    """Return the rows as lines, a ratio behind each figure that has a floor."""
    return "\n".join(
        f"{row['server']:<20}{row['verb']:<12}" + "   ".join(_cell(row, percent) for percent in _PERCENTILES)
        for row in found["rows"]
    )


Samples = dict[tuple[str, str], list[float]]


async def _measure(folder: Path, nodes: int, pods: int, candidates: int) -> Samples:
    kubeconfig = folder / "kubeconfig"
    simulated = mixed_fleet(nodes)
    settings = {"scheduling": {"candidates": candidates}}
    async with ApiServer(Store()) as server, ApiClient(server.url) as api:
        write_kubeconfig(kubeconfig, server.url)
        await join(api, simulated)
        async with running_extender(kubeconfig, folder, settings) as extender, running_echo(folder) as floor:
            return await _call_all(api, extender.url, floor.url, [node.name for node in simulated], pods)


async def _call_all(api: ApiClient, url: str, floor_url: str, names: list[str], pods: int) -> Samples:
    samples: Samples = {}
    async with aiohttp.ClientSession() as session:

        async def call(server: str, verb: str, body: Json) -> Any:
            base = floor_url if server == FLOOR else url
            content = msgspec.json.encode(body)
            begun = time.perf_counter()
            async with session.post(f"{base}/v1/extender/{verb}", data=content) as response:
                answer = await response.read()
                samples.setdefault((server, verb), []).append(time.perf_counter() - begun)
                if response.status != 200:
                    raise RuntimeError(f"{verb}: {response.status} {answer[:200]!r}")
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
    for (server, verb), seconds in sorted(samples.items()):
        row: dict[str, Any] = {"server": server, "verb": verb, "nodes": nodes, "calls": len(seconds)}
        floor = samples.get((FLOOR, verb))
        for percent in _PERCENTILES:
            row[f"p{percent}_ms"] = round(1000 * _percentile(seconds, percent), 3)
            if floor and server != FLOOR:
                row[f"p{percent}_to_floor"] = round(_percentile(seconds, percent) / _percentile(floor, percent), 2)
        rows.append(row)
    return rows


def _percentile(seconds: list[float], percent: int) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _cell(row: dict[str, Any], percent: int) -> str:
    ratio = row.get(f"p{percent}_to_floor")
    return f"p{percent} {row[f'p{percent}_ms']:8.3f} ms" + (f" = {ratio:.2f} of the floor" if ratio else " " * 20)
