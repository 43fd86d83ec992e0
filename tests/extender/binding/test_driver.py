"""Each step is answered once, within the time that is left."""

from __future__ import annotations

import pytest

from extender.binding.driver import Driver
from extender.binding.intents import FencePod, GetClaim, GetNode, Gone, Intent, NoAnswer, Reply, Step, fence
from extender.kit.clock import Instant
from tests.extender.builders import pod


async def test_each_intent_has_the_time_that_is_left_and_none_once_there_is_none() -> None:
    """A reply may come later than the deadline; the next step is then told at once that there is no time."""
    now, budgets = 0.0, []

    async def execute(intent: Intent, seconds: float) -> Reply:
        nonlocal now
        budgets.append(seconds)
        now += 4.0
        return Gone()

    def steps() -> Step[list[Reply]]:
        first = yield GetNode("n1")
        second = yield GetNode("n2")
        return [first, second, (yield GetNode("n3"))]

    assert await Driver(execute, lambda: Instant(now, now), 3.0).drive(steps(), 7.0) == [Gone()] * 3
    assert budgets == [7.0, 3.0, 0.0]


async def test_steps_that_need_nothing_are_done_at_once() -> None:
    """Nothing is executed."""

    def steps() -> Step[int]:
        yield from ()
        return 7

    async def execute(intent: Intent, seconds: float) -> Reply:
        raise AssertionError(intent)

    assert await Driver(execute, lambda: Instant(0.0, 0.0), 3.0).drive(steps(), 1.0) == 7


@pytest.mark.parametrize("is_sure", [True, False])
async def test_a_pod_is_fenced_only_after_what_rests_on_its_claims_is_taken_back(is_sure: bool) -> None:
    """Otherwise the step hears no answer, and keeps the claims."""
    asked = list[Intent]()

    async def execute(intent: Intent, seconds: float) -> Reply:
        asked.append(intent)
        return Gone()

    def take_back(uid: str) -> Step[bool]:
        yield GetClaim("ml", uid)
        return is_sure

    def steps() -> Step[Reply]:
        return (yield fence(pod("p")))

    driver = Driver(execute, lambda: Instant(0.0, 0.0), 3.0, [take_back])
    reply = await driver.drive(steps(), 1.0)
    assert [type(intent) for intent in asked] == ([GetClaim, FencePod] if is_sure else [GetClaim])
    assert isinstance(reply, Gone if is_sure else NoAnswer)
