"""Each step is answered once, within the time that is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.binding.driver import Driver
from extender.binding.intents import (
    Conflict,
    Done,
    FencePod,
    GetClaim,
    GetNode,
    Gone,
    Intent,
    NoAnswer,
    Refused,
    Reply,
    Step,
    fence,
)
from extender.cluster.objects.kinds import Pod
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


@pytest.mark.parametrize("reply", [Done(pod("p", version=2)), Conflict("changed"), Gone()])
@pytest.mark.parametrize("is_sure", [True, False])
async def test_what_rests_on_claims_of_a_pod_is_taken_back_once_it_has_left_its_version(
    reply: Reply, is_sure: bool
) -> None:
    """Whoever has ended that version. If it fails, the step hears no answer, and keeps the claims."""
    asked = list[Intent]()

    async def execute(intent: Intent, seconds: float) -> Reply:
        asked.append(intent)
        return reply

    heard = await Driver(execute, lambda: Instant(0.0, 0.0), 3.0, [_taken_back(is_sure)]).drive(_fenced(), 1.0)
    assert [type(intent) for intent in asked] == [FencePod, GetClaim]
    assert heard == reply if is_sure else isinstance(heard, NoAnswer)


@pytest.mark.parametrize("reply", [NoAnswer("time-out"), Refused(403, "no")])
async def test_nothing_is_taken_back_while_the_version_may_stand(reply: Reply) -> None:
    """Whoever reads the pod in that version would write it again."""
    asked = list[Intent]()

    async def execute(intent: Intent, seconds: float) -> Reply:
        asked.append(intent)
        return reply

    heard = await Driver(execute, lambda: Instant(0.0, 0.0), 3.0, [_taken_back(True)]).drive(_fenced(), 1.0)
    assert heard == reply
    assert [type(intent) for intent in asked] == [FencePod]


def _fenced() -> Step[Reply]:
    return (yield fence(pod("p")))


def _taken_back(is_sure: bool) -> Callable[[Pod], Step[bool]]:
    def take_back(pod: Pod) -> Step[bool]:
        yield GetClaim(pod.metadata.namespace, pod.metadata.name)
        return is_sure

    return take_back
