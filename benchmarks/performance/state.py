"""`gputopo-bench state`: how long the extender takes to know a whole cluster after its start, and how much memory.

The real extender lists a cluster that is there already from an API double. It has mixed nodes with pods, four of the
first ten on each node with six of its eight GPUs. A bare client that reads the same lists page by page and decodes
nothing is timed before. The double makes its pages in Python and more slowly than a real API server. Then a burst of
watch events comes, while the event loop of the extender is watched, and beside it one that does nothing.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.performance.machine import describe_machine
from benchmarks.performance.verbs import percentile
from benchmarks.performance.watch_burst import BurstOutcome, burst
from benchmarks.processes.client import ApiClient
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.processes.ticking import lateness_ms, running_bare
from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import POD_SIZES, SimulatedNode, gpu_pod, mixed_fleet, node_object
from benchmarks.simulated.pod_life import next_status
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, PlacementRecord, encode_ledger, encode_placement

_NAMESPACE = "default"
_GPUS_OF_PODS = (2, 0, 1, 0, 1, 0, 2, 0, 0, 0)
"""Of the pods of one node, in order; further ones have none."""
_STARTED = "2026-01-01T00:00:00Z"
_PAGE = 500
_MIB = 1 << 20


def measure(nodes: int, pods: int, events: int, seconds: float) -> dict[str, Any]:
    """Return one row: seconds from start to ready, resident memory then and after some calls, and what a burst of events does.

    Without `events` there is no burst. Raises `NotReady`.
    """
    machine = describe_machine()
    end_in_order_on_signals()
    with tempfile.TemporaryDirectory(prefix="gputopo-state-") as folder:
        return {"rows": [asyncio.run(_measure(Path(folder), nodes, pods, events, seconds))], "machine": machine}


def as_text(found: dict[str, Any]) -> str:
    """Return each row as some lines."""
    return "\n".join(
        f"{row['nodes']:,} nodes, {row['pods']:,} pods, {row['gpu_pods']:,} of them with GPUs: {row['list_mib']} MiB to read\n"
        f"ready after {row['ready_seconds']} s, of which {row['cpu_seconds']} s on a core; "
        f"a bare client reads the lists in {row['list_seconds']} s\n"
        f"resident {row['resident_mib']} MiB when ready (at most {row['peak_mib']} before), "
        f"{row['resident_mib_in_use']} MiB after a call for each size of pod"
        f"{_of_burst(row) if 'burst_events' in row else ''}"
        for row in found["rows"]
    )


def _of_burst(row: dict[str, Any]) -> str:
    loop, floor = (
        f"{row[f'{whose}_late_p50_ms']} ms, p99 {row[f'{whose}_late_p99_ms']} ms, at most {row[f'{whose}_late_max_ms']} ms"
        for whose in ("loop", "floor")
    )
    return (
        f"\n{row['burst_events']:,} events in {row['burst_seconds']} s: the event loop is late by {loop}\n"
        f"one that does nothing is late by {floor}\n"
        f"all known {row['settled_seconds']} s later, {row['missed']} missed; "
        f"{row['burst_cpu_ms_per_event']} ms of CPU an event; {row['resident_mib_after']} MiB"
    )


async def _measure(folder: Path, nodes: int, pods: int, events: int, seconds: float) -> dict[str, Any]:
    store = ObjectStore()
    simulated = mixed_fleet(nodes)
    gpu_pods = populate(store, simulated, pods)
    async with ApiServer(store) as server, ApiClient(server.url) as api:
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.url)
        begun = time.perf_counter()
        list_bytes = await _read_lists(server.url)
        listed = time.perf_counter()
        ticks, bare = folder / "ticks", folder / "bare-ticks"
        came = None
        async with running_extender(kubeconfig, folder, ticks=ticks) as extender:
            ready = time.perf_counter()
            cpu_seconds = extender.process.cpu_seconds()
            resident, peak = extender.process.memory_bytes(), extender.process.peak_memory_bytes()
            candidates = await _ask(api, extender, [node.name for node in simulated])
            in_use = extender.process.memory_bytes()
            if events:
                async with running_bare(bare):
                    before = extender.process.cpu_seconds()
                    came = await burst(store, api, extender, simulated, events, seconds)
                    computed = extender.process.cpu_seconds() - before
                    after = extender.process.memory_bytes()
    row = {
        "nodes": nodes,
        "pods": pods,
        "gpu_pods": gpu_pods,
        "list_mib": round(list_bytes / _MIB, 1),
        "list_seconds": round(listed - begun, 3),
        "ready_seconds": round(ready - listed, 2),
        "cpu_seconds": cpu_seconds,
        "resident_mib": resident // _MIB,
        "peak_mib": peak // _MIB,
        "resident_mib_in_use": in_use // _MIB,
        "candidates_by_gpus": candidates,
    }
    if came:
        row |= _lateness("loop", ticks, came) | _lateness("floor", bare, came)
        row |= {
            "burst_events": came.events,
            "burst_seconds": came.seconds,
            "burst_cpu_ms_per_event": round(1000 * computed / came.events, 3),
            "settled_seconds": came.settled_seconds,
            "missed": came.missed,
            "resident_mib_after": after // _MIB,
        }
    return row


def _lateness(whose: str, file: Path, during: BurstOutcome) -> dict[str, float]:
    late = lateness_ms(file, during.begun, during.ended)
    figures = {"p50": percentile(late, 50), "p99": percentile(late, 99), "max": max(late)}
    return {f"{whose}_late_{name}_ms": round(figure, 1) for name, figure in figures.items()}


def populate(store: ObjectStore, nodes: tuple[SimulatedNode, ...], pods: int) -> int:
    """Fill `store` with nodes and so many running pods, spread evenly; returns how many of these have GPUs."""
    with_gpus = 0
    for position, node in enumerate(nodes):
        made = store.create(NODES, "", node_object(node))["metadata"]
        claims = _run_all(store, node, pods // len(nodes) + (position < pods % len(nodes)))
        uuids = tuple(gpu.uuid for gpu in node.topology.gpus)
        annotations = made["annotations"] | {keys.LEDGER: encode_ledger(Ledger(1, claims, made["uid"], uuids))}
        store.modify(NODES, "", node.name, partial(merge_patch, patch={"metadata": {"annotations": annotations}}))
        with_gpus += len({claim.uid for claim in claims})
    store.compact()
    return with_gpus


def _run_all(store: ObjectStore, node: SimulatedNode, pods: int) -> tuple[Claim, ...]:
    """Let so many pods run on a node; returns what its ledger says of them."""
    free = iter([gpu.uuid for gpu in node.topology.gpus])
    sizes = islice(chain(_GPUS_OF_PODS, repeat(0)), pods)
    return tuple(
        claim
        for number, gpus in enumerate(sizes)
        for claim in _run(store, node.name, f"{node.name}-{number}", tuple(islice(free, gpus)))
    )


def _run(store: ObjectStore, node: str, name: str, gpus: tuple[str, ...]) -> list[Claim]:
    """Let a pod run on `node` and hold `gpus`; returns what the ledger says of that."""
    identity = store.create(PODS, _NAMESPACE, gpu_pod(name, len(gpus)))["metadata"]
    uid, version = identity["uid"], identity["resourceVersion"]
    record = {keys.PLACEMENT: encode_placement(PlacementRecord({"main": gpus}))} if gpus else {}
    metadata = {"name": name, "uid": uid, "annotations": record}
    pod = store.bind(_NAMESPACE, name, {"metadata": metadata, "target": {"kind": "Node", "name": node}})
    status = pod["status"] | (next_status(pod, _STARTED, terminating=False) or {})
    store.modify(PODS, _NAMESPACE, name, lambda old: {**old, "status": status}, subresource="status")
    return [Claim(gpu, uid, _NAMESPACE, name, "main", version) for gpu in gpus]


class _ListMeta(msgspec.Struct):
    token: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta


async def _read_lists(url: str) -> int:
    """Read all nodes and pods as pages, and return how many bytes they were."""
    read = 0
    async with aiohttp.ClientSession() as session:
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            token: str | None = None
            while token != "":
                query = {"limit": str(_PAGE), **({"continue": token} if token else {})}
                async with session.get(url + path, params=query) as response:
                    body = await response.read()
                read += len(body)
                token = msgspec.json.decode(body, type=_Page).metadata.token
    return read


async def _ask(api: ApiClient, extender: RunningExtender, names: list[str]) -> dict[str, int]:
    """Let filter answer for one waiting pod of each size: it makes then what it keeps, and shows that it knows who holds what."""
    candidates: dict[str, int] = {}
    async with aiohttp.ClientSession() as session:
        for gpus in sorted(set(POD_SIZES)):
            spec = gpu_pod(f"waiting-{gpus}", gpus, schedulerName="gputopo")
            pod = (await api.call("POST", f"/api/v1/namespaces/{_NAMESPACE}/pods", spec)).ok()
            body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
            async with session.post(f"{extender.url}/v1/extender/filter", data=body) as response:
                answer = msgspec.json.decode(await response.read())
            candidates[str(gpus)] = len(answer.get("NodeNames") or ())
    return candidates
