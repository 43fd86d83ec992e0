"""`gputopo-bench latency`: how long the verbs take over HTTP, beside the floor of a handler that only echoes the names.

The extender is the real process, its caches are filled from an API double, and the calls come one after another on one
connection, as kube-scheduler makes them: for each pod filter, prioritize, bind. The floor gets the same bodies in the same run.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.console import Console
from rich.progress import Progress

from benchmarks.client import ApiClient, Json
from benchmarks.double.server import ApiServer, write_kubeconfig
from benchmarks.double.store import Store
from benchmarks.extender_process import free_port, running_extender, wait_ready
from benchmarks.fleet import fleet, gpu_pod, join
from benchmarks.machine import describe_machine

_MACHINES = ("dgx-1v", "dgx-a100", "hgx-h100", "l40s-8", "a100-pcie-8-pairs")
_SIZES = (1, 2, 4, 8, 2, 1)
_WARM_UP = 30
FILTER, PRIORITIZE, BIND = "filter", "prioritize", "bind"
FLOOR, GPUTOPO, ALL_NAMES = "floor", "gputopo", "gputopo, all names"
"""`prioritize` normally gets the candidates of `filter`; to be compared with the floor it gets all names, too."""


def measure(nodes: int, pods: int, candidates: int) -> dict[str, Any]:
    """Return rows of p50 and p99 per verb and server, in milliseconds, and the ratios of the p99s to the floor's."""
    with tempfile.TemporaryDirectory(prefix="gputopo-latency-") as folder:
        return asyncio.run(_measure(Path(folder), nodes, pods, candidates))


async def _measure(folder: Path, nodes: int, pods: int, candidates: int) -> dict[str, Any]:
    async with ApiServer(Store()) as server, ApiClient(server.url) as api:
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.url)
        simulated = fleet(dict.fromkeys(_MACHINES, -(-nodes // len(_MACHINES))))[:nodes]
        await join(api, simulated)
        extender = running_extender(kubeconfig, folder, {"scheduling": {"candidates": candidates}})
        floor = _running_floor(folder)
        started = time.perf_counter()
        url = await asyncio.to_thread(extender.__enter__)
        ready_seconds = time.perf_counter() - started
        floor_url = await asyncio.to_thread(floor.__enter__)
        try:
            names = [node.name for node in simulated]
            samples = await _call_all(api, url, floor_url, names, pods)
        finally:
            await asyncio.to_thread(floor.__exit__, None, None, None)
            await asyncio.to_thread(extender.__exit__, None, None, None)
    return _summary(samples, nodes, candidates, ready_seconds)


Samples = dict[tuple[str, str], list[float]]


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
    spec = gpu_pod(f"pod-{number}", _SIZES[number % len(_SIZES)], schedulerName="gputopo")
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


def _summary(samples: Samples, nodes: int, candidates: int, ready_seconds: float) -> dict[str, Any]:
    percentiles = {key: _percentiles(seconds) for key, seconds in sorted(samples.items())}
    rows = [
        {"server": server, "verb": verb, "nodes": nodes, "calls": len(samples[server, verb]), **figures}
        for (server, verb), figures in percentiles.items()
    ]
    ratios = {
        verb: round(percentiles[ours, verb]["p99_ms"] / percentiles[FLOOR, verb]["p99_ms"], 2)
        for ours, verb in ((GPUTOPO, FILTER), (ALL_NAMES, PRIORITIZE))
    }
    return {
        "rows": rows,
        "p99_ratio_to_floor": ratios,
        "candidates": candidates,
        "ready_seconds": round(ready_seconds, 2),
        "machine": describe_machine(),
    }


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"p{percent}_ms": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 3)
        for percent in (50, 99)
    }


@contextmanager
def _running_floor(folder: Path) -> Iterator[str]:
    port = free_port()
    log = folder / "floor.log"
    command = [sys.executable, "-m", "uvicorn", "benchmarks.echo:app", "--port", str(port), "--no-access-log"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603 - our own program
    url = f"http://127.0.0.1:{port}"
    try:
        wait_ready(process, url, log)
        yield url
    finally:
        process.kill()
        process.wait()
