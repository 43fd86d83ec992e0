"""Several extenders steer: what others do meanwhile counts before the next pods are planned."""

from __future__ import annotations

import asyncio

from extender.binding.driver import Driver
from extender.binding.intents import Conflict, Intent, Nominate, Reply
from extender.clock import Instant
from extender.config import ExtenderConfiguration
from extender.metrics import Metrics
from extender.nominating import Nominating
from tests.extender.builders import at, cluster, node
from tests.extender.steering.queues import SCHEDULER, nominated, waiting

LIFE_SECONDS = 2.0


def test_what_another_one_takes_back_while_we_try_to_is_not_nominated_again_at_once() -> None:
    """It was in vain, whoever wrote first; the watch may tell before our own write is answered."""
    state, now, asked = cluster(node("n1"), nominated(waiting("p1"), "n1")), at(0.0), list[str]()

    async def execute(intent: Intent, timeout_seconds: float) -> Reply:
        assert isinstance(intent, Nominate)
        asked.append(intent.node)
        state.pods.changed(nominated(waiting("p1"), None, version=int(intent.resource_version) + 1))
        return Conflict("changed")

    def clock() -> Instant:
        return now

    steering = {"enabled": True, "queue": 1, "nodes": 2, "life": f"{LIFE_SECONDS}s"}
    config = ExtenderConfiguration.model_validate(
        {"scheduling": {"schedulerNames": list(SCHEDULER)}, "steering": steering}
    )
    nominating = Nominating(state, Driver(execute, clock, 3.0), clock, Metrics(""), config)
    for seconds in (0.0, LIFE_SECONDS + 2.0, LIFE_SECONDS + 3.0):
        now = at(seconds)
        nominating.asked(2)
        asyncio.run(nominating.round())
    assert asked == [""]
