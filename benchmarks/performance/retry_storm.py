"""A retry storm: pods that our extender rejects wherever they are tried, and changes of nodes for which they are tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from benchmarks.performance.verbs import create
from benchmarks.processes.client import MERGE_PATCH, ApiClient
from benchmarks.processes.process import Process
from benchmarks.simulated.fleet import gpu_pod, mixed_fleet
from topology.annotations import keys

REJECTED_PODS = 50
UPDATES_PER_SECOND = 10
_WATCHED_SECONDS = 20.0
_MORE_THAN_ANY = {keys.MIN_BANDWIDTH: "1000000"}
"""No GPUs are so fast, and kube-scheduler itself does not know: each try gets as far as our filter."""


@asynccontextmanager
async def storm(api: ApiClient, nodes: int) -> AsyncIterator[None]:
    """Create pods that fit nowhere, and change nodes of a mixed fleet in turn for as long as the context is open."""
    for number in range(REJECTED_PODS):
        await create(api, gpu_pod(f"rejected-{number}", 2, _MORE_THAN_ANY))
    changing = asyncio.create_task(_change_nodes(api, [node.name for node in mixed_fleet(nodes)]))
    try:
        yield
    finally:
        changing.cancel()
        with suppress(asyncio.CancelledError):
            await changing


async def cpu_percent(process: Process) -> float:
    """Return what a process computes from now on for a while, of a core."""
    before, begun = process.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(_WATCHED_SECONDS)
    return round(100 * (process.cpu_seconds() - before) / (time.perf_counter() - begun), 1)


async def _change_nodes(api: ApiClient, names: list[str]) -> None:
    number = 0
    while True:
        patch = {"metadata": {"labels": {"benchmark.gputopo.dev/changed": str(number)}}}
        await api.call("PATCH", f"/api/v1/nodes/{names[number % len(names)]}", patch, content_type=MERGE_PATCH)
        number += 1
        await asyncio.sleep(1 / UPDATES_PER_SECOND)
