"""What is worked out beside calls leaves them most of the time, if they do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import suppress

from extender.cluster.candidates.values import Values
from extender.core.derivation import keep_appraised
from extender.kit.turns import PAUSE_SECONDS, SHORT_TURN_SECONDS, in_short_turns, with_pauses
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
async def test_no_call_waits_for_what_free_gpus_are_worth() -> None:
    """It decides with what is known."""
    values = Busy()
    with suppress(TimeoutError):
        await asyncio.wait_for(keep_appraised(values), 10 * WORK_SECONDS)
    assert values.took is not None
    assert values.took > 0.8 * WORK_SECONDS / PART
