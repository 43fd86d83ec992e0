"""Pages give way to calls, and are ready in time all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from extender.kit.calls_first import MOST_GIVEN_SECONDS, CallsFirst
from extender.kit.turns import TURN_SECONDS
from tests.extender.virtual_time import VirtualTimeLoop, in_virtual_time

ROWS, ROW_SECONDS = 400, TURN_SECONDS / 8
PAGE_SECONDS = ROWS * ROW_SECONDS


def rows() -> Iterator[int]:
    """Take the loop's time, a row at a time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    for row in range(ROWS):
        loop.advance(ROW_SECONDS)
        yield row


@in_virtual_time
async def test_no_turn_of_a_page_comes_between_the_parts_of_a_call() -> None:
    """Nothing takes the loop's time while a call waits for its own parts."""
    calls, clock = CallsFirst(), asyncio.get_running_loop().time
    page = asyncio.ensure_future(calls.listed(rows()))
    await asyncio.sleep(0)
    with calls.call():
        began = clock()
        for _ in range(10):
            await asyncio.sleep(0)
        assert clock() == began
    assert await page == [*range(ROWS)]


@in_virtual_time
async def test_a_page_is_ready_beside_calls_that_never_end() -> None:
    """Each of its gaps lasts for a bounded time."""
    calls, began = CallsFirst(), asyncio.get_running_loop().time()
    with calls.call():
        assert await calls.listed(rows()) == [*range(ROWS)]
    gaps = PAGE_SECONDS / TURN_SECONDS
    assert asyncio.get_running_loop().time() - began < 1.01 * (PAGE_SECONDS + gaps * MOST_GIVEN_SECONDS)


@in_virtual_time
async def test_a_page_takes_no_longer_without_calls() -> None:
    """It gives others their turns, and pauses for nobody."""
    began = asyncio.get_running_loop().time()
    await CallsFirst().listed(rows())
    assert asyncio.get_running_loop().time() - began < 1.01 * PAGE_SECONDS
