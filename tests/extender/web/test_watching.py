"""Ten people with the front page open, beside kube-scheduler's calls: a figure, taken on a process of its own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from statistics import median
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

PEOPLE, ROUND_SECONDS, WARM_UP_SECONDS = 10, 6.0, 1.0
"""A round is long enough for everybody to look once."""
GOAL = 1.1
"""Of the p99 of filter beside people, to that without."""
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
    goal: Callable[[float], float],
    figure: Callable[[str], None],
) -> None:
    """In turns with and without them; everybody is answered, and in the median filter's p99 stays what it was."""
    if nodes > 500 and not pytestconfig.getoption("--long"):
        pytest.skip("five thousand nodes take two minutes: only with --long")
    fleet, ticks, quiet_seconds = mixed_fleet(nodes), tmp_path / "ticks", rounds(2, 15)
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api, aiohttp.ClientSession() as session:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        await join(api, fleet)
        pod = (await api.call("POST", "/api/v1/namespaces/default/pods", gpu_pod("train", 4))).ok()
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": [node.name for node in fleet]})
        view_port = free_port()
        settings = {"view": {"enabled": True, "authorization": "none", "port": view_port}} if port == "view" else {}
        async with running_extender(tmp_path / "kubeconfig", tmp_path, settings, ticks=ticks) as extender:
            pages = f"http://127.0.0.1:{view_port}" if settings else extender.url
            warm = len(await filters(session, extender.url, body, WARM_UP_SECONDS))
            took, answers = list[list[float]](), Counter[int]()
            for pair in range(rounds(1, 8)):
                for beside in (pair % 2 == 1, pair % 2 == 0):  # what grows with time is on both sides
                    async with watched(pages, answers, PEOPLE if beside else 0):
                        took.append(await filters(session, extender.url, body))
            seconds = iter(told_seconds(extender.process.log)[warm:])
            inside = [[*islice(seconds, len(calls))] for calls in took]
            at_rest = await computed_ms(extender, quiet_seconds)
            begun = monotonic()
            async with watched(pages, answers):
                share = (await computed_ms(extender, quiet_seconds) - at_rest) / quiet_seconds
            ended = monotonic()
    late_ms = lateness_ms(ticks, begun, ended)
    assert answers[200] > 0
    assert answers.keys() <= {200, 304}
    assert [*map(len, inside)] == [*map(len, took)]
    figure(
        f"web: filter of {nodes:,} nodes beside {PEOPLE} people who watch the port of the {port}, p99 to that without: "
        f"{ratios(took)} for a "
        f"caller who shares two cores with them, {ratios(inside)} inside the extender (goal {GOAL}; {sum(map(len, took))} calls, "
        f"{sum(answers.values())} pages); they cost the event loop {share:.1f} ms of CPU a second, and made it late by "
        f"{max(late_ms):.1f} ms at most"
    )
    assert median(beside / without for without, beside in p99s(inside)) <= goal(GOAL)


def told_seconds(log: Path) -> list[float]:
    """Return how long each filter took as the extender's log says it, in order."""
    lines = (msgspec.json.decode(line) for line in log.read_bytes().splitlines() if line.startswith(b"{"))
    return [line["duration_seconds"] for line in lines if line.get("verb") == "filter"]


def p99s(rounds: list[list[float]]) -> list[tuple[float, float]]:
    """Return the p99 without people and that beside them, in milliseconds, of each two rounds.

    The first pair begins with the one without people, and the next with the other one.
    """
    figures = [1000 * sorted(taken)[len(taken) * 99 // 100] for taken in rounds]
    return [
        (first, second) if number % 2 == 0 else (second, first)
        for number, (first, second) in enumerate(batched(figures))
    ]


def ratios(rounds: list[list[float]]) -> str:
    """Return the p99 of a round beside people to that of the round next to it: the median, the range, and the median p99s."""
    pairs = p99s(rounds)
    quotients = sorted(beside / without for without, beside in pairs)
    without, beside = (median(figures) for figures in zip(*pairs, strict=True))
    return (
        f"{median(quotients):.2f} times in the median of {len(pairs)} pairs of rounds "
        f"({quotients[0]:.2f} to {quotients[-1]:.2f}; {beside:.2f} ms to {without:.2f})"
    )


def batched(items: list[float]) -> Iterator[tuple[float, float]]:
    """Yield the items two by two."""
    return zip(items[::2], items[1::2], strict=True)


async def computed_ms(extender: RunningExtender, seconds: float) -> float:
    """Return what the event loop computes while kube-scheduler asks nothing, its timer included."""
    before = extender.process.main_thread_cpu_ms()
    await asyncio.sleep(seconds)
    return extender.process.main_thread_cpu_ms() - before


async def filters(session: aiohttp.ClientSession, url: str, body: bytes, seconds: float = ROUND_SECONDS) -> list[float]:
    """Call filter again and again, by default for a round; returns what each call took, in seconds."""
    took, until = list[float](), monotonic() + seconds
    while (begun := monotonic()) < until:
        async with session.post(f"{url}/v1/extender/filter", data=body) as response:
            assert response.status == 200
            await response.read()
        took.append(monotonic() - begun)
    return took


@asynccontextmanager
async def watched(url: str, answers: Counter[int], count: int = PEOPLE) -> AsyncIterator[None]:
    """Have so many people look meanwhile, each over a connection of their own."""

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

    people = [asyncio.create_task(person()) for _ in range(count)]
    yield
    for task in people:
        task.cancel()
    await asyncio.gather(*people, return_exceptions=True)
