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
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from benchmarks.processes.ticking import lateness_ms
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import gpu_pod, join, mixed_fleet

PEOPLE, ROUND_SECONDS = 10, 6.0
EVERY_SECONDS = 5.0
"""As the pages' script reads them."""


@pytest.mark.alone
@pytest.mark.parametrize("port", ["verbs", "view"])
@pytest.mark.parametrize("nodes", [500, 5_000])
async def test_ten_people_who_watch_and_the_time_of_filter(
    tmp_path: Path,
    nodes: int,
    port: str,
    pytestconfig: pytest.Config,
    rounds: Callable[[int, int], int],
    figure: Callable[[str], None],
) -> None:
    """In turns with and without them; everybody is answered."""
    if nodes > 500 and not pytestconfig.getoption("--long"):
        pytest.skip("five thousand nodes take two minutes: only with --long")
    fleet, ticks, quiet_seconds = mixed_fleet(nodes), tmp_path / "ticks", rounds(6, 15)
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api, aiohttp.ClientSession() as session:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        await join(api, fleet)
        pod = (await api.call("POST", "/api/v1/namespaces/default/pods", gpu_pod("train", 4))).ok()
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": [node.name for node in fleet]})
        view_port = free_port()
        settings = {"view": {"enabled": True, "authorization": "none", "port": view_port}} if port == "view" else {}
        async with running_extender(tmp_path / "kubeconfig", tmp_path, settings, ticks=ticks) as extender:
            pages = f"http://127.0.0.1:{view_port}" if settings else extender.url
            warm = len(await filters(session, extender.url, body))
            took, is_beside, answers = list[float](), list[bool](), Counter[int]()
            for _ in range(rounds(2, 4)):
                took += await filters(session, extender.url, body)
                is_beside += [False] * (len(took) - len(is_beside))
                async with watched(pages, answers):
                    took += await filters(session, extender.url, body)
                is_beside += [True] * (len(took) - len(is_beside))
            inside = told_seconds(extender.process.log)[warm:]
            at_rest = await computed_ms(extender, quiet_seconds)
            begun = monotonic()
            async with watched(pages, answers):
                share = (await computed_ms(extender, quiet_seconds) - at_rest) / quiet_seconds
            ended = monotonic()
    late_ms = lateness_ms(ticks, begun, ended)
    assert answers[200] > 0
    assert answers.keys() <= {200, 304}
    assert len(inside) == len(took)
    figure(
        f"web: filter of {nodes:,} nodes beside {PEOPLE} people who watch the port of the {port}, p99 to that without: "
        f"{ratio(took, is_beside)} for a "
        f"caller who shares two cores with them, {ratio(inside, is_beside)} inside the extender (goal 1.1; {len(took)} calls, "
        f"{sum(answers.values())} pages); they cost the event loop {share:.1f} ms of CPU a second, and made it late by "
        f"{max(late_ms):.1f} ms at most"
    )


def told_seconds(log: Path) -> list[float]:
    """Return how long each filter took as the extender's log says it, in order."""
    lines = (msgspec.json.decode(line) for line in log.read_bytes().splitlines() if line.startswith(b"{"))
    return [line["duration_seconds"] for line in lines if line.get("verb") == "filter"]


def ratio(seconds: list[float], is_beside: list[bool]) -> str:
    """Return the p99 of calls beside people to that of the others, and both."""
    p99s = []
    for beside in (True, False):
        found = sorted(taken for taken, each in zip(seconds, is_beside, strict=True) if each is beside)
        p99s.append(1000 * found[len(found) * 99 // 100])
    return f"{p99s[0] / p99s[1]:.2f} times ({p99s[0]:.2f} ms to {p99s[1]:.2f})"


async def computed_ms(extender: RunningExtender, seconds: float) -> float:
    """Return what the event loop computes while kube-scheduler asks nothing, its timer included."""
    before = extender.process.main_thread_cpu_ms()
    await asyncio.sleep(seconds)
    return extender.process.main_thread_cpu_ms() - before


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
