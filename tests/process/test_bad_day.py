"""All at once that tenants, strangers and a stolen token can do: good pods are bound."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median

import msgspec
import pytest

from benchmarks.processes.process import free_port
from benchmarks.simulated.fleet import SimulatedNode, fleet
from tests.cluster.extender_process import ExtenderProcess
from tests.process import attackers
from tests.process.attackers import ATTACKS, attacked
from tests.process.backends import names
from tests.process.tiers import everywhere
from tests.process.world import World
from tests.security.crowd import crowd
from tests.world.invariants import broken_promises

CALLS = ("filter", "prioritize", "bind", "create")
"""The last one is of the API server alone."""
PERIOD_SECONDS = 0.1
CROWDS = {"/metrics": 700, "/readyz?verbose": 100}
CROWD_PAUSE_SECONDS = 1.0
FILTER_SECONDS = 0.05
"""20 ms for a search, 10 ms for reading the largest pod that there is, and a busy machine."""
WRITES = 3
"""Of the API server, that a bind takes at most: it makes two, and one may be refused."""
SETTINGS = {"reconcile": {"orphanAfter": "5s"}}
"""What is claimed in vain is taken back before the test has to end."""


class Victim(ExtenderProcess):
    """An extender with a health port of its own, which goes straight to the API server."""

    def __init__(self, name: str, folder: Path, world: World) -> None:
        self.health_address = ("127.0.0.1", free_port())
        host, port = self.health_address
        super().__init__(name, world.backend.extender, folder, {**SETTINGS, "health": {"host": host, "port": port}})


@dataclass(frozen=True, slots=True)
class Day:
    """What became of the pods of one day, or of a part of it; all in seconds."""

    pods: tuple[float, ...]
    """Of each pod, from its first filter call until it was bound."""
    calls: Mapping[str, tuple[float, ...]]
    """By verb."""
    cpu: float = 0.0
    """What the extender has computed meanwhile."""

    @classmethod
    def of(cls, *parts: Day) -> Day:
        """Put parts of a day together."""
        calls = {verb: tuple(chain.from_iterable(part.calls[verb] for part in parts)) for verb in CALLS}
        return cls(tuple(chain.from_iterable(part.pods for part in parts)), calls, sum(part.cpu for part in parts))

    def __str__(self) -> str:
        """Say it in milliseconds; what stands in brackets are p99s, too."""
        verbs = ", ".join(f"{verb} {milliseconds(p99(self.calls[verb]))}" for verb in CALLS)
        return (
            f"p50 {milliseconds(median(self.pods))}, p99 {milliseconds(p99(self.pods))} ({verbs}), "
            f"longest {milliseconds(max(self.pods))}, extender's CPU {self.cpu:.1f} s"
        )


def p99(seconds: Sequence[float]) -> float:
    """Return what ninety-nine of a hundred took at most."""
    return sorted(seconds)[int(0.99 * len(seconds))]


def milliseconds(seconds: float) -> str:
    """Write it without a fraction."""
    return f"{1000 * seconds:.0f}"


@pytest.mark.alone
@everywhere
async def test_good_pods_are_bound_on_a_bad_day(
    world: World,
    tmp_path: Path,
    rounds: Callable[[int, int], int],
    figure: Callable[[str], None],
) -> None:
    """A crowd, heavy pods, forged topologies, nodes that leave, and more, all at once: all are bound, and soon.

    A quiet half day comes before the bad day and one after it. All share the machine's cores with the extender: the programs
    that attack, and with them the API server, which does for each attack much more than the extender. The goal is a p99 of
    twice a quiet day's, and it is missed on two cores: `bind` waits for an API server that is busy, and `filter` for the reading
    of nine megabytes or for a search within its budget, where a quiet day's takes two milliseconds. So the ratio is printed, and
    what the extender can answer for is asserted.
    """
    nodes, count = rounds(0, 1000), rounds(0, 200)
    if not nodes:
        pytest.skip("a thousand nodes, a crowd and heavy pods take minutes: only with --long")
    await world.join(*cluster(nodes))
    extender = Victim("extender", tmp_path, world)
    async with running(extender):
        await pods_of(world, extender, "warm", 10)
        quiet = [await pods_of(world, extender, "morning", count // 2)]
        async with bad_day(world, extender, tuple(ATTACKS)):
            bad = [await pods_of(world, extender, "noon", count // 2)]
            ready_seconds = await fresh_extender_is_ready(world, tmp_path)
            bad.append(await pods_of(world, extender, "afternoon", count // 2))
        quiet.append(await pods_of(world, extender, "evening", count // 2))
        await world.judge()
        _, pods = await world.backend.objects()
        assert not list(broken_promises([one for one in extender.said("bind") if "gpus" in one], pods))
    calm, wild = Day.of(*quiet), Day.of(*bad)
    ratio = p99(wild.pods) / p99(calm.pods)
    of_filter = p99(wild.calls["filter"]) / p99(calm.calls["filter"])
    figure(
        f"bad day: {nodes} nodes, {count} pods, {type(world.backend).__name__}: p99 {ratio:.1f} times (goal 2), filter's "
        f"{of_filter:.1f}, the API server's own "
        f"{p99(wild.calls['create']) / p99(calm.calls['create']):.1f}; in ms: quiet: {calm}; bad: {wild}; "
        f"a fresh extender was ready after {ready_seconds:.1f} s"
    )
    assert p99(wild.calls["filter"]) <= FILTER_SECONDS
    assert p99(wild.calls["bind"]) <= WRITES * p99(wild.calls["create"]) + FILTER_SECONDS


def cluster(nodes: int) -> list[SimulatedNode]:
    """Return so many nodes, three of ten full with one pod each."""
    used = tuple(range(8))
    full, empty = 3 * nodes // 10, nodes - 3 * nodes // 10
    there = [SimulatedNode(f"full-{number}", "hgx-h100", used) for number in range(full)]
    return [*there, *fleet({"dgx-a100": empty // 2, "hgx-h100": empty - empty // 2})]


@asynccontextmanager
async def bad_day(world: World, extender: Victim, chosen: Sequence[str]) -> AsyncIterator[None]:
    """Have these attacks and the crowd under way while the context is open; then take away what the attackers have made."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(swept, world)
        await stack.enter_async_context(attacked(world.backend.admin, extender.url, chosen))
        for path, visitors in CROWDS.items():
            at_the_port = crowd(
                extender.health_address, path, visitors, pause_seconds=CROWD_PAUSE_SECONDS, nice=attackers.NICE
            )
            await stack.enter_async_context(at_the_port)
        yield


async def swept(world: World) -> None:
    """Delete the attackers' pods and nodes; what the nodes said is held against nobody."""
    nodes, pods = await world.backend.objects()
    for pod in pods:
        if pod["spec"].get("schedulerName") == attackers.NOBODY and not pod["spec"].get("nodeName"):
            await world.delete(pod["metadata"]["name"], gracePeriodSeconds=0)
    for name in names(nodes):
        if name.startswith((attackers.FORGED, attackers.LEAVING)):
            await world.remove_node(name)


async def fresh_extender_is_ready(world: World, folder: Path) -> float:
    """Start another extender, return how many seconds it took to be ready, and stop it again."""
    clock = asyncio.get_running_loop().time
    began = clock()
    async with running(Victim("fresh", folder, world)):
        return clock() - began


@asynccontextmanager
async def running(extender: Victim) -> AsyncIterator[None]:
    """Run an extender while the context is open; the API double works meanwhile."""
    try:
        await asyncio.to_thread(extender.run)
        yield
    finally:
        await asyncio.to_thread(extender.stop)


async def pods_of(world: World, extender: ExtenderProcess, prefix: str, count: int) -> Day:
    """Let so many good pods come, one after the other, and see all of them bound."""
    before = extender.cpu_seconds()
    command = (sys.executable, "-m", "tests.process.caller", world.backend.admin, extender.url, prefix)
    caller = await asyncio.create_subprocess_exec(
        *command, str(count), str(PERIOD_SECONDS), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await caller.communicate()
    assert caller.returncode == 0
    day = replace(msgspec.json.decode(output, type=Day), cpu=extender.cpu_seconds() - before)
    assert len(day.pods) == count
    return day
