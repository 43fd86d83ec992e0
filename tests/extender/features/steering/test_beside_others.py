"""One round of an extender: what others do meanwhile counts before pods are planned, and a pause is kept."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from extender.binding.driver import Driver, Execute
from extender.binding.intents import Conflict, Intent, Nominate, Reply
from extender.cluster.candidates.shape_index import Order
from extender.cluster.state import ClusterState
from extender.features.steering.feature import AT_WORK_SECONDS, BATCH, NOMINATIONS, ROUND_SECONDS, Steering
from extender.features.steering.nomination_breaker import ENOUGH, FIRST_PAUSE_SECONDS
from extender.features.steering.settings import SteeringSettings
from extender.kit.clock import Clock
from extender.planning.queue import LEAD
from extender.telemetry.metrics import Metrics
from tests.extender.builders import args, at, cluster, node, pod
from tests.extender.planning.queues import SCHEDULER, nominated, waiting
from tests.extender.rounds import at_work
from tests.extender.verbs.test_slices import fleet
from topology.annotations import keys

LIFE_SECONDS = 2.0
ASKED = args(pod("somebody"), "n1", "n2")
"""kube-scheduler asks about a pod on two nodes."""


def steering(state: ClusterState, execute: Execute, clock: Clock) -> Steering:
    settings = SteeringSettings(enabled=True, queue=1, nodes=2, life=LIFE_SECONDS)
    return Steering(state, Driver(execute, clock, 3.0), clock, Metrics("", [NOMINATIONS]), settings, SCHEDULER)


def test_what_another_one_takes_back_while_we_try_to_is_not_nominated_again_at_once() -> None:
    """It was in vain, whoever wrote first; the watch may tell before our own write is answered."""
    state, now, asked = cluster(node("n1"), nominated(waiting("p1"), "n1")), at(0.0), list[str]()

    async def execute(intent: Intent, timeout_seconds: float) -> Reply:
        assert isinstance(intent, Nominate)
        asked.append(intent.node)
        state.pods.changed(nominated(waiting("p1"), None, version=int(intent.resource_version) + 1))
        return Conflict("changed")

    nominating = steering(state, execute, lambda: now)
    for seconds in (0.0, LIFE_SECONDS + 2.0, LIFE_SECONDS + 5.0):
        now = at(seconds)
        nominating.before_filter(ASKED)
        now = at(seconds + AT_WORK_SECONDS)  # from then on no pod is left to a kube-scheduler that may take it next
        asyncio.run(nominating.round())
    assert asked == [""]


async def test_what_is_taken_back_while_a_write_of_ours_is_out_is_not_nominated_again_at_once() -> None:
    """Rounds go on meanwhile: none of them may plan before it has taken in what was in vain."""
    state, now, asked = cluster(node("n1"), nominated(waiting("p1"), "n1")), at(0.0), list[str]()
    is_out, may_be_answered = asyncio.Event(), asyncio.Event()

    async def execute(intent: Intent, timeout_seconds: float) -> Reply:
        assert isinstance(intent, Nominate)
        asked.append(intent.node)
        state.pods.changed(nominated(waiting("p1"), None, version=int(intent.resource_version) + 1))
        is_out.set()
        await may_be_answered.wait()
        return Conflict("changed")

    nominating = steering(state, execute, lambda: now)
    await nominating.round()
    nominating.before_filter(ASKED)
    now = at(LIFE_SECONDS + 2.0)
    async with at_work(nominating):
        await is_out.wait()
        await asyncio.sleep(4 * ROUND_SECONDS)
        may_be_answered.set()
    assert asked == [""]


@pytest.mark.parametrize(
    ("in_vain", "is_paused"),
    [(["ml"] * ENOUGH, True), ([f"t{number}" for number in range(ENOUGH)], True), (["evil"] * ENOUGH, False)],
    ids=["own", "all", "another-tenant's"],
)
def test_nobody_is_nominated_during_a_pause(in_vain: list[str], is_paused: bool) -> None:
    """It follows where much has come to nothing; after it the queue is nominated again."""
    now, asked = at(0.0), list[str]()

    async def execute(intent: Intent, timeout_seconds: float) -> Reply:
        assert isinstance(intent, Nominate)
        asked.append(intent.node)
        return Conflict("changed")

    queue = [waiting(f"p{number}") for number in range(LEAD + 1)]
    nominating = steering(cluster(node("n1"), *queue), execute, lambda: now)
    for namespace in in_vain:
        nominating.nominations.breaker.ended(namespace, 0.0, came_true=False)
    for seconds, is_over in ((FIRST_PAUSE_SECONDS - 1.0, not is_paused), (FIRST_PAUSE_SECONDS, True)):
        now = at(seconds)
        asked.clear()
        nominating.before_filter(ASKED)
        asyncio.run(nominating.round())
        assert asked == ["n1"] * is_over


@pytest.mark.slow
async def test_what_a_batch_asks_for_is_decided_on_in_slices_before_it_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pod may ask for something else, and calls are answered between the slices; the plan itself takes no pause."""
    state, undecided, turns = fleet(), list[bool](), count()
    for number in range(BATCH):
        state.pods.changed(waiting(f"p{number:02}", 2, wants={keys.MIN_BANDWIDTH: str(1 + number)}))

    async def execute(intent: Intent, timeout_seconds: float) -> Reply:
        return Conflict("changed")

    async def others() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    catch_up = Order.catch_up

    def caught_up(order: Order) -> None:
        if order in state.shapes._orders.values():  # and not of the nodes that the plan itself has changed
            undecided.append(not order.prepare(0))
        catch_up(order)

    monkeypatch.setattr(Order, "catch_up", caught_up)
    nominating, beside = steering(state, execute, lambda: at(AT_WORK_SECONDS)), asyncio.create_task(others())
    nominating.before_filter(ASKED)
    await nominating.round()
    beside.cancel()
    assert next(turns) > BATCH
    assert len(undecided) >= BATCH - LEAD and not any(undecided)
