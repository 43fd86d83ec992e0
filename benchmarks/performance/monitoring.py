"""`gputopo-bench monitoring`: what it costs a node that its agent samples the GPUs and is scraped.

Two real agents run side by side on whatever NVML is here, beside an API double: one samples every 15 s, one does not. Both are
scraped every 15 s. What the first computes more is what sampling costs, and what both write to the API server is counted.
Then the first is scraped as often as it makes a new page, and asked for `/livez` in between. That is the floor of one
request.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.performance.machine import describe_machine
from benchmarks.processes.agent_process import RunningAgent, running_agent
from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.double.resources import EVENTS, NODES
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore

INTERVAL_SECONDS = 15.0
_NEW_PAGE_SECONDS = 1.05
"""A page of metrics serves everybody for a second."""
_SAMPLED_WITHIN_SECONDS = 30.0
_MIB = 1 << 20
_FLEET = 5000
"""Nodes, for which the API server's load is computed from that of these two."""
_SAMPLED = b"\ngputopo_gpu_memory_total_bytes{"
_TOOK = re.compile(rb"^gputopo_agent_sampling_duration_seconds (\S+)$", re.MULTILINE)


class NothingSampled(Exception):
    """There is no NVML here, or no GPU; the text says what the agent said."""


def measure(seconds: float, scrapes: int) -> dict[str, Any]:
    """Return one row; raises `NotReady` and `NothingSampled`."""
    machine = describe_machine()
    end_in_order_on_signals()
    with tempfile.TemporaryDirectory(prefix="gputopo-monitoring-") as folder:
        return {"rows": [asyncio.run(_measure(Path(folder), seconds, scrapes))], "machine": machine}


def as_text(found: dict[str, Any]) -> str:
    """Return the row as lines."""
    [row] = found["rows"]
    return (
        f"{row['gpus']} GPUs, {row['series']} series, {row['page_kib']} KiB a page\n"
        f"a scrape takes {row['scrape_p50_ms']} ms, at most {row['scrape_max_ms']} ms of {row['scrapes']}; "
        f"/livez {row['floor_p50_ms']} ms ({row['scrape_to_floor']} times that)\n"
        f"a sample takes {row['sample_ms']} ms\n"
        f"of a core over {row['seconds']:.0f} s, scraped every 15 s: {row['sampling_percent']} % with sampling, "
        f"{row['not_sampling_percent']} % without, so {row['cost_percent']} % for it\n"
        f"resident {row['resident_mib']} MiB with sampling, {row['not_sampling_resident_mib']} MiB without\n"
        f"an agent writes {row['node_writes_per_hour']} times an hour to its Node, and posts {row['events_per_hour']} events; "
        f"{_FLEET:,} agents write {row['fleet_writes_per_second']} times a second"
    )


async def _measure(folder: Path, seconds: float, scrapes: int) -> dict[str, Any]:
    async with AsyncExitStack() as running:
        store = ObjectStore()
        server = await running.enter_async_context(ApiServer(store))
        api = await running.enter_async_context(ApiClient(server.url))
        session = await running.enter_async_context(aiohttp.ClientSession())
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.url)
        agents = {}
        for gpus in ("always", "never"):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": gpus}}
            (await api.call("POST", "/api/v1/nodes", node)).ok()
            settings = {"metrics": {"gpus": gpus, "interval": f"{INTERVAL_SECONDS:g}s"}}
            agents[gpus] = await running.enter_async_context(running_agent(kubeconfig, folder, gpus, settings))
        sampling, not_sampling = agents["always"], agents["never"]
        await _first_sample(session, sampling)
        since = store.resource_version
        shares = await _cpu_percent(session, [sampling, not_sampling], seconds)
        written = Counter(change.resource for change in store.changes_since(since))
        writes, events = (3600 * written[of] / (seconds * len(agents)) for of in (NODES, EVENTS))
        pages, floor = await _scrape(session, sampling, scrapes)
        _, page = await _get(session, sampling, "/metrics")
        took = _TOOK.search(page)
        return {
            "gpus": page.count(_SAMPLED),
            "series": sum(line.startswith(b"gputopo_gpu_") for line in page.splitlines()),
            "page_kib": round(len(page) / 1024, 1),
            "scrapes": scrapes,
            "scrape_p50_ms": _middle(pages),
            "scrape_max_ms": round(max(pages), 2),
            "floor_p50_ms": _middle(floor),
            "scrape_to_floor": round(_middle(pages) / _middle(floor), 1),
            "sample_ms": round(1000 * float(took[1]), 2) if took else None,
            "seconds": seconds,
            "sampling_percent": round(shares[0], 2),
            "not_sampling_percent": round(shares[1], 2),
            "cost_percent": round(shares[0] - shares[1], 2),
            "node_writes_per_hour": round(writes, 1),
            "events_per_hour": round(events, 1),
            "fleet_writes_per_second": round(_FLEET * (writes + events) / 3600, 1),
            "resident_mib": sampling.process.memory_bytes() // _MIB,
            "not_sampling_resident_mib": not_sampling.process.memory_bytes() // _MIB,
        }


async def _first_sample(session: aiohttp.ClientSession, agent: RunningAgent) -> None:
    end = time.monotonic() + _SAMPLED_WITHIN_SECONDS
    while time.monotonic() < end:
        _, page = await _get(session, agent, "/metrics")
        if _SAMPLED in page:
            return
        await asyncio.sleep(_NEW_PAGE_SECONDS)
    raise NothingSampled(f"the agent has sampled no GPU; the end of its log:\n{agent.process.log_tail(5)}")


async def _cpu_percent(session: aiohttp.ClientSession, agents: list[RunningAgent], seconds: float) -> list[float]:
    """Return what each computes of a core, while each is scraped every 15 s."""
    before = [agent.process.cpu_seconds() for agent in agents]
    begun = time.monotonic()
    while (left := begun + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(left, INTERVAL_SECONDS))
        for agent in agents:
            await _get(session, agent, "/metrics")
    passed = time.monotonic() - begun
    return [100 * (agent.process.cpu_seconds() - was) / passed for agent, was in zip(agents, before, strict=True)]


async def _scrape(session: aiohttp.ClientSession, agent: RunningAgent, scrapes: int) -> tuple[list[float], list[float]]:
    """Return milliseconds of scrapes that have a new page made for them, and of `/livez`."""
    pages, floor = [], []
    for _ in range(scrapes):
        await asyncio.sleep(_NEW_PAGE_SECONDS)
        floor.append((await _get(session, agent, "/livez"))[0])
        pages.append((await _get(session, agent, "/metrics"))[0])
    return pages, floor


async def _get(session: aiohttp.ClientSession, agent: RunningAgent, path: str) -> tuple[float, bytes]:
    begun = time.perf_counter()
    async with session.get(agent.url + path) as response:
        body = await response.read()
        return 1000 * (time.perf_counter() - begun), body


def _middle(milliseconds: list[float]) -> float:
    return round(sorted(milliseconds)[len(milliseconds) // 2], 2)
