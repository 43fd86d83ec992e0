"""How long nodes without a ledger wait for the pods that are fenced first, and what cannot make that longer."""

from __future__ import annotations

import asyncio
import dataclasses
from asyncio import Lock
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from extender.binding.driver import Driver
from extender.binding.intents import Done, FencePod, GetPodVersion, Intent, ListPods, NoAnswer, Refused, Reply
from extender.binding.release import ClaimTimers
from extender.cluster.objects.kinds import MAX_POD_BYTES
from extender.cluster.state import ClusterState
from extender.core.reconciler import FENCES_AT_ONCE, Reconciler
from extender.kit.clock import Instant
from extender.kubernetes.events import EventRecorder
from extender.telemetry.core import LEDGER_REPAIRS
from extender.telemetry.metrics import Metrics
from tests.extender.builders import node, pod
from tests.extender.virtual_time import in_virtual_time

FENCE_SECONDS = 0.02
"""What a write takes an API server that has other work, too."""
LIST_SECONDS = 2.0


class Fencing:
    """One node without a ledger, others that leave, pods that wait, and an extender that makes its rounds."""

    def __init__(self, waiting: int, leaving: int = 0, refused: Collection[str] = ()) -> None:
        self.pods = tuple(pod(f"p{number}") for number in range(waiting))
        self.state = ClusterState()
        self.leaving = [node(f"leaves-{number}") for number in range(leaving)]
        self.state.nodes.replaced([node("bare", claims=None), *self.leaving])
        self.state.pods.replaced(self.pods)
        self.fenced: list[str] = []
        self.lists = self.looks = self.at_once = self.most_at_once = 0
        self.refused = refused
        events = EventRecorder(partial(pytest.fail, "nothing is sent"))
        turns = defaultdict[str, Lock](Lock)

        def clock() -> Instant:
            return Instant(asyncio.get_running_loop().time(), 1_800_000_000.0)

        self.upkeep = Reconciler(
            state=self.state,
            timers=ClaimTimers(),
            driver=Driver(self._execute, clock, 3.0),
            lock_of=turns.__getitem__,
            events=events,
            metrics=Metrics("", [LEDGER_REPAIRS]),
        )

    @property
    def is_closed(self) -> bool:
        """Whether the node without a ledger still waits for fences."""
        self.state.refresh()
        return self.state.fences.is_needed("bare")

    async def open(self) -> float:
        """Make rounds until the node waits for nobody; returns the seconds that took."""
        clock = asyncio.get_running_loop()
        began = clock.time()
        while self.is_closed:
            await self.upkeep.round()
            await asyncio.sleep(1.0)
        return clock.time() - began

    async def lose_nodes(self, every_seconds: float) -> None:
        """Let one node after the other leave, each with its ledger."""
        for each in self.leaving:
            await asyncio.sleep(every_seconds)
            self.state.nodes.deleted(each)

    async def _execute(self, intent: Intent, seconds: float) -> Reply:
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(intent)
        except TimeoutError:
            return NoAnswer("timed out")

    async def _answer(self, intent: Intent) -> Reply:
        match intent:
            case ListPods(""):
                self.lists += 1
                await asyncio.sleep(LIST_SECONDS)
                return Done(self.pods)
            case FencePod() if intent.name in self.refused:
                return Refused(403, "no status for you")
            case FencePod():
                return await self._fence(intent)
            case GetPodVersion(_, name):
                self.looks += 1
                return Done(next(each for each in self.pods if each.metadata.name == name))
        return NoAnswer("not here")

    async def _fence(self, intent: FencePod) -> Reply:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(FENCE_SECONDS)
        self.at_once -= 1
        self.fenced.append(intent.name)
        return Done(replace(intent.known, metadata=replace(intent.known.metadata, resource_version="2")))


@in_virtual_time
async def test_nodes_that_leave_do_not_prolong_a_list() -> None:
    """Ten of them leave meanwhile, each with a ledger; each pod is fenced once, for the node that waits."""
    fencing = Fencing(waiting=200, leaving=10)
    async with asyncio.TaskGroup() as group:
        group.create_task(fencing.lose_nodes(every_seconds=0.05 + LIST_SECONDS / 10))
        await fencing.open()
    assert (fencing.lists, len(fencing.fenced)) == (1, 200)


@in_virtual_time
async def test_fences_go_side_by_side_within_a_limit() -> None:
    """As many as leave connections for binds."""
    fencing = Fencing(waiting=10 * FENCES_AT_ONCE)
    await fencing.open()
    assert fencing.most_at_once == FENCES_AT_ONCE


def test_ten_thousand_pods_are_fenced_in_time_while_a_node_leaves_each_second(
    rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """One list and one write per pod; the time follows from that."""
    waiting = rounds(1_000, 10_000)
    bound_seconds = LIST_SECONDS + waiting / FENCES_AT_ONCE * FENCE_SECONDS + 2.0

    @in_virtual_time
    async def run() -> None:
        fencing = Fencing(waiting, leaving=60)
        leaving = asyncio.create_task(fencing.lose_nodes(every_seconds=1.0))
        seconds = await fencing.open()
        leaving.cancel()
        figure(
            f"consistent list: {waiting} pods wait, a node leaves each second: {len(fencing.fenced)} fences, "
            f"{fencing.lists} list, open after {seconds:.1f} s of virtual time at {FENCE_SECONDS * 1000:.0f} ms a write, "
            f"{FENCES_AT_ONCE} at once"
        )
        assert (fencing.lists, len(fencing.fenced)) == (1, waiting)
        assert seconds <= bound_seconds

    run()


@in_virtual_time
async def test_a_pod_that_may_not_be_fenced_keeps_no_other_from_it() -> None:
    """It comes first of those to be fenced; all others are fenced at once, and only it is tried again."""
    fencing = Fencing(waiting=100, refused={"p0"})
    await fencing.upkeep.round()
    assert len(fencing.fenced) == 99
    assert [each.metadata.name for each in fencing.state.fences.to_fence] == ["p0"]
    assert fencing.is_closed


@in_virtual_time
async def test_a_list_of_refusals_costs_a_few_calls_a_round() -> None:
    """A webhook refuses everything: each round tries as many as go side by side, and the next round others."""
    fencing = Fencing(waiting=100, refused={f"p{number}" for number in range(100)})
    for _ in range(2):
        await fencing.upkeep.round()
    assert fencing.looks == 2 * FENCES_AT_ONCE
    assert fencing.state.fences.to_fence[-1].metadata.name == f"p{2 * FENCES_AT_ONCE - 1}"


@in_virtual_time
async def test_what_keeps_nodes_closed_is_told_of_each_pod() -> None:
    """One line a minute, and an event on every pod that could not be fenced, with the reason."""
    fencing = Fencing(waiting=3, refused={"p0", "p2"})
    with capture_logs() as lines:
        for _ in range(35):
            await fencing.upkeep.round()
            await asyncio.sleep(2.0)
    said = [(line["pod"], line["pods"], line["reason"]) for line in lines if line["log_level"] == "warning"]
    assert said == [("ml/p0", 2, "no status for you")] * 2
    assert not fencing.upkeep.events.is_news("p0", "GPUPodNotFenced")
    assert not fencing.upkeep.events.is_news("p2", "GPUPodNotFenced")
    assert fencing.upkeep.events.is_news("p1", "GPUPodNotFenced")


@in_virtual_time
async def test_a_list_that_is_not_answered_is_told() -> None:
    """Nobody can be fenced before, and nothing opens."""
    fencing = Fencing(waiting=1)

    async def execute(intent: Intent, seconds: float) -> Reply:
        return NoAnswer("a page of more than 64 MiB")

    fencing.upkeep.driver = dataclasses.replace(fencing.upkeep.driver, execute=execute)
    with capture_logs() as lines:
        await fencing.upkeep.round()
    assert [line["reason"] for line in lines] == ["a page of more than 64 MiB"]


@in_virtual_time
async def test_a_pod_too_large_to_be_written_to_is_nobody_s_to_wait_for() -> None:
    """Its fence is refused as too large, without end; nobody has sent a Binding for it, and the node opens."""
    fencing = Fencing(waiting=2, refused={"p0"})
    fencing.pods = (replace(fencing.pods[0], json_bytes=1_500_000), fencing.pods[1])
    await fencing.open()
    assert fencing.fenced == ["p1"]


@in_virtual_time
async def test_a_pod_that_another_server_shows_a_little_larger_is_fenced() -> None:
    """One of the other version may have shown it small enough for a Binding."""
    fencing = Fencing(waiting=1)
    fencing.pods = (replace(fencing.pods[0], json_bytes=MAX_POD_BYTES + 1),)
    await fencing.open()
    assert fencing.fenced == ["p0"]
