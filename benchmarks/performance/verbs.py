"""The verbs of an extender, called as kube-scheduler calls them, and what each call costs.

The cluster is an API double in this process; the extender is the real program, or another one that answers the same verbs.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.resources import NODES
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, join, node_object

FILTER, PRIORITIZE, BIND = "filter", "prioritize", "bind"
PODS = "/api/v1/namespaces/default/pods"
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One call."""

    milliseconds: float
    """As the caller sees it: what else the machine does counts."""
    cpu_ms: float
    """What the server computed meanwhile: its main thread, or all threads where any may answer."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Simulated nodes, and the extender that knows them."""

    api: ApiClient
    extender: RunningExtender
    kubeconfig: Path


@asynccontextmanager
async def running_cluster(
    folder: Path, nodes: Iterable[SimulatedNode], as_object: Callable[[SimulatedNode], Json] = node_object
) -> AsyncIterator[tuple[ApiClient, Path]]:
    """Serve these nodes; enter with a client and a kubeconfig, which is written into `folder`."""
    store, kubeconfig = ObjectStore(), folder / "kubeconfig"
    occupied = []
    for node in nodes:
        if node.used or node.shared_gib:
            occupied.append(node)
        else:
            store.create(NODES, "", as_object(node))
    async with ApiServer(store) as server, ApiClient(server.url) as api:
        await join(api, occupied)
        store.compact()
        write_kubeconfig(kubeconfig, server.url)
        yield api, kubeconfig


@asynccontextmanager
async def running_fleet(
    folder: Path, nodes: Iterable[SimulatedNode], settings: Json | None = None
) -> AsyncIterator[Fleet]:
    """Serve these nodes, and run our extender beside them."""
    async with (
        running_cluster(folder, nodes) as (api, kubeconfig),
        running_extender(kubeconfig, folder, settings) as extender,
    ):
        yield Fleet(api, extender, kubeconfig)


async def create(api: ApiClient, pod: Json) -> Json:
    """Create a pod, and return it as the API server has it."""
    return (await api.call("POST", PODS, pod)).ok()


async def ask(session: aiohttp.ClientSession, asked: RunningExtender, verb: str, body: Json) -> tuple[Any, Sample]:
    """Call a verb, and return its answer and what it cost; raises `RuntimeError` where it is refused."""
    content = msgspec.json.encode(body)
    computed, begun = asked.cpu_ms(), time.perf_counter()
    async with session.post(f"{asked.url}{asked.path}/{verb}", data=content, headers=_JSON) as response:
        answer = await response.read()
        milliseconds = 1000 * (time.perf_counter() - begun)
    if response.status != 200:
        raise RuntimeError(f"{verb}: {response.status} {answer[:200]!r}")
    cpu_ms = asked.cpu_ms() - computed
    said = msgspec.json.decode(answer)
    if isinstance(said, dict) and said.get("Error"):
        raise RuntimeError(f"{verb}: {said['Error']}")
    return said, Sample(milliseconds, cpu_ms)


def about(pod: Json, names: Sequence[str]) -> Json:
    """Return what filter and prioritize are asked: this pod, on the nodes of these names."""
    return {"Pod": pod, "Nodes": None, "NodeNames": names}


def binding(pod: Json, node: str) -> Json:
    """Return what bind is asked."""
    identity = pod["metadata"]
    return {
        "PodName": identity["name"],
        "PodNamespace": identity["namespace"],
        "PodUID": identity["uid"],
        "Node": node,
    }


def percentile(figures: Sequence[float], percent: float) -> float:
    """Return the smallest figure that so many percent of them do not pass."""
    ordered = sorted(figures)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
