"""What is worked out beside calls leaves them most of the time, if they do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import suppress

from extender.cluster.candidates.values import Values
from extender.core.derivation import keep_appraised
from extender.kit.turns import (
    MOST_GIVEN_SECONDS,
    PAUSE_SECONDS,
    SHORT_TURN_SECONDS,
    CallsFirst,
    in_short_turns,
    listed,
    with_pauses,
)
from tests.extender.virtual_time import VirtualTimeLoop, in_virtual_time
from topology.placement.topology_classes import TopologyClasses
from topology.value.score import Weights

STEP_SECONDS = SHORT_TURN_SECONDS / 4
STEPS = 400
WORK_SECONDS = STEPS * STEP_SECONDS
PART = SHORT_TURN_SECONDS / (SHORT_TURN_SECONDS + PAUSE_SECONDS)


def work() -> Iterator[None]:
    """Take the loop's time, a step at a time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    for _ in range(STEPS):
        loop.advance(STEP_SECONDS)
        yield


class Busy(Values):
    """Have something to appraise, once."""

    def __init__(self) -> None:
        super().__init__(TopologyClasses(), Weights(), lambda: None)
        self.took: float | None = None

    def appraise(self) -> Generator[None]:
        began = asyncio.get_running_loop().time()
        yield from work() if self.took is None else ()
        self.took = asyncio.get_running_loop().time() - began


@in_virtual_time
async def test_what_nobody_waits_for_takes_a_part_of_the_time() -> None:
    """What calls wait for takes all of it, in turns."""
    clock = asyncio.get_running_loop().time
    began = clock()
    await in_short_turns(work())
    assert clock() - began < 1.01 * WORK_SECONDS
    began = clock()
    await with_pauses(work())
    assert clock() - began > 0.8 * WORK_SECONDS / PART


@in_virtual_time
async def test_pages_wait_for_calls() -> None:
    """Not one turn of a page comes between the parts of a call."""
    calls, clock = CallsFirst(), asyncio.get_running_loop().time
    page = asyncio.ensure_future(listed(work(), calls.gap))
    await asyncio.sleep(0)
    with calls.call():
        began = clock()
        for _ in range(10):
            await asyncio.sleep(MOST_GIVEN_SECONDS / 20)
        assert clock() - began < 0.51 * MOST_GIVEN_SECONDS
    await page


@in_virtual_time
async def test_pages_come_beside_calls_that_never_end() -> None:
    """Each of their gaps lasts for a bounded time."""
    calls, began = CallsFirst(), asyncio.get_running_loop().time()
    with calls.call():
        assert len(await listed(work(), calls.gap)) == STEPS
    turns = WORK_SECONDS / SHORT_TURN_SECONDS
    assert asyncio.get_running_loop().time() - began < 1.1 * (WORK_SECONDS + turns * MOST_GIVEN_SECONDS)


@in_virtual_time
async def test_no_call_waits_for_what_free_gpus_are_worth() -> None:
    """It decides with what is known."""
    values = Busy()
    with suppress(TimeoutError):
        await asyncio.wait_for(keep_appraised(values), 10 * WORK_SECONDS)
    assert values.took is not None
    assert values.took > 0.8 * WORK_SECONDS / PART
