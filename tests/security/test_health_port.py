"""What strangers at the health port can do to the verbs and to the kubelet's probes: next to nothing, however many come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from benchmarks.simulated.fleet import fleet
from tests.security.crowd import crowd
from tests.security.target import Target, filter_body, target

pytestmark = pytest.mark.alone

NODES = fleet({"dgx-a100": 500, "hgx-h100": 500})
CALLS = 200
LONGEST_SECONDS = 20.0
"""Enough to see what calls take that are held up."""


async def filter_p99_seconds(attacked: Target) -> float:
    """Call filter one call after another, as kube-scheduler does; return the p99 of its time."""
    until = time.monotonic() + LONGEST_SECONDS
    seconds, body = list[float](), filter_body([node.name for node in NODES])
    async with aiohttp.ClientSession() as session:
        while len(seconds) < CALLS and time.monotonic() < until:
            began = time.perf_counter()
            async with session.post(f"{attacked.url}/v1/extender/filter", data=body) as answer:
                assert answer.status == 200
                await answer.read()
            seconds.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
    return sorted(seconds)[int(len(seconds) * 0.99)]


async def longest_probe_seconds(attacked: Target, until: asyncio.Future[float]) -> float:
    """Probe as the kubelet does, each time on a new connection, until a future is done; return the longest wait."""
    longest = 0.0
    while not until.done():
        began = time.perf_counter()
        async with aiohttp.ClientSession() as session, session.get(f"{attacked.health_url}/livez") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(0.1)
    return longest


@pytest.mark.parametrize("path", ["/metrics", "/readyz?verbose"])
async def test_a_crowd_at_the_health_port_slows_neither_filter_nor_probes(
    tmp_path: Path, path: str, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """800 connections ask without a pause: filter takes at most twice as long (p99, 1,000 nodes), probes less than 1 s."""
    async with target(tmp_path, *NODES) as attacked:
        await filter_p99_seconds(attacked)
        alone = await filter_p99_seconds(attacked)
        async with crowd(attacked.health_address, path, 800):
            await asyncio.sleep(2)
            calls = asyncio.ensure_future(filter_p99_seconds(attacked))
            probe = await longest_probe_seconds(attacked, calls)
            beside = await calls
    figure(
        f"health port: 800 connections on {path}: filter's p99 {1000 * beside:.1f} ms, alone {1000 * alone:.1f} ms: "
        f"{beside / alone:.1f} times (goal 2); longest probe {1000 * probe:.0f} ms (goal 1000)"
    )
    assert beside / alone <= goal(2)
    assert probe <= goal(1)
