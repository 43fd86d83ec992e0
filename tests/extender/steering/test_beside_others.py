"""One round of an extender: what others do meanwhile counts before pods are planned, and a pause is kept."""

from __future__ import annotations

import asyncio

from extender.binding.driver import Driver, Execute
from extender.binding.intents import Conflict, Intent, Nominate, Reply
from extender.clock import Clock
from extender.cluster.state import ClusterState
from extender.config import ExtenderConfiguration
from extender.metrics import Metrics
from extender.nominating import AT_WORK_SECONDS, ROUND_SECONDS, Nominating
from extender.steering.queue import LEAD
from tests.extender.builders import at, cluster, node
from tests.extender.steering.queues import SCHEDULER, nominated, waiting

LIFE_SECONDS = 2.0


def steering(state: ClusterState, execute: Execute, clock: Clock) -> Nominating:
    settings = {"enabled": True, "queue": 1, "nodes": 2, "life": f"{LIFE_SECONDS}s"}
    config = ExtenderConfiguration.model_validate(
        {"scheduling": {"schedulerNames": list(SCHEDULER)}, "steering": settings}
    )
    return Nominating(state, Driver(execute, clock, 3.0), clock, Metrics(""), config)


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
        nominating.asked("somebody", 2)
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

    async def is_known() -> None:
        """Return at once."""

    nominating = steering(state, execute, lambda: now)
    await nominating.round()
    nominating.asked("somebody", 2)
    now = at(LIFE_SECONDS + 2.0)
    rounds = asyncio.create_task(nominating.run(is_known))
    await is_out.wait()
    await asyncio.sleep(4 * ROUND_SECONDS)
    may_be_answered.set()
    rounds.cancel()
    assert asked == [""]


def test_nobody_is_nominated_during_a_pause() -> None:
    """It follows where much has come to nothing; after it the queue is nominated again."""
    now, asked = at(0.0), list[str]()

    async def execute(intent: Intent, timeout_seconds: float) -> Reply:
        assert isinstance(intent, Nominate)
        asked.append(intent.node)
        return Conflict("changed")

    queue = [waiting(f"p{number}") for number in range(LEAD + 1)]
    nominating = steering(cluster(node("n1"), *queue), execute, lambda: now)
    nominating.nominations.worth.paused_until = 5.0
    for seconds, expected in ((4.0, []), (5.0, ["n1"])):
        now = at(seconds)
        nominating.asked("somebody", 2)
        asyncio.run(nominating.round())
        assert asked == expected
