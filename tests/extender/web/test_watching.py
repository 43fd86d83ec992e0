"""Ten people with the front page open, beside kube-scheduler's calls: a figure, taken on a process of its own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import aiohttp
import msgspec
import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.extender_process import running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import Store
from benchmarks.simulated.fleet import gpu_pod, join, mixed_fleet

NODES, PEOPLE, ROUNDS, ROUND_SECONDS, QUIET_SECONDS = 500, 10, 4, 6.0, 15.0
EVERY_SECONDS = 5.0
"""As the pages' script reads them."""


@pytest.mark.alone
async def test_ten_people_who_watch_and_the_time_of_filter(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """In turns with and without them; everybody is answered."""
    fleet = mixed_fleet(NODES)
    async with ApiServer(Store()) as server, ApiClient(server.url) as api, aiohttp.ClientSession() as session:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        await join(api, fleet)
        pod = (await api.call("POST", "/api/v1/namespaces/default/pods", gpu_pod("train", 4))).ok()
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": [node.name for node in fleet]})
        async with running_extender(tmp_path / "kubeconfig", tmp_path, {}) as extender:
            alone, beside, answers = list[float](), list[float](), Counter[int]()
            await filters(session, extender.url, body)
            for _ in range(ROUNDS):
                alone += await filters(session, extender.url, body)
                async with watched(extender.url, answers):
                    beside += await filters(session, extender.url, body)
            before = extender.process.main_thread_cpu_ms()
            async with watched(extender.url, answers):
                await asyncio.sleep(QUIET_SECONDS)
            share = (extender.process.main_thread_cpu_ms() - before) / QUIET_SECONDS
    assert answers[200] > 0
    assert answers.keys() <= {200, 304}
    p99, p99_beside = (1000 * sorted(found)[len(found) * 99 // 100] for found in (alone, beside))
    figure(
        f"web: filter of {NODES} nodes, p99 {p99:.2f} ms alone, {p99_beside:.2f} ms beside {PEOPLE} people who watch "
        f"({p99_beside / p99:.2f} times, goal 1.1; {len(beside)} calls, {sum(answers.values())} pages); "
        f"they cost the event loop {share:.1f} ms of CPU a second"
    )


async def filters(session: aiohttp.ClientSession, url: str, body: bytes) -> list[float]:
    """Call filter again and again for a round; returns what each call took, in seconds."""
    took, until = list[float](), monotonic() + ROUND_SECONDS
    while (begun := monotonic()) < until:
        async with session.post(f"{url}/v1/extender/filter", data=body) as response:
            assert response.status == 200
            await response.read()
        took.append(monotonic() - begun)
    return took


@asynccontextmanager
async def watched(url: str, answers: Counter[int]) -> AsyncIterator[None]:
    """Have people look meanwhile, each over a connection of their own."""

    async def person() -> None:
        tag = ""
        async with aiohttp.ClientSession() as session:
            await asyncio.sleep(random.uniform(0, EVERY_SECONDS))
            while True:
                async with session.get(url, headers={"If-None-Match": tag}) as response:
                    answers[response.status] += 1
                    await response.read()
                    tag = response.headers["ETag"]
                await asyncio.sleep(EVERY_SECONDS * random.uniform(0.8, 1.2))

    people = [asyncio.create_task(person()) for _ in range(PEOPLE)]
    yield
    for task in people:
        task.cancel()
    await asyncio.gather(*people, return_exceptions=True)
