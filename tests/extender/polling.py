"""Wait for what must come true, however slow the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_GENEROUS_SECONDS = 60.0
"""More than anything takes on a machine that does much else: who asserts how soon something comes true says so."""


async def until(condition: Callable[[], object], timeout_seconds: float = _GENEROUS_SECONDS) -> None:
    """Return as soon as `condition` holds; raises `TimeoutError` when it does not in time."""
    async with asyncio.timeout(timeout_seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def eventually(probe: Callable[[], Awaitable[T]], timeout_seconds: float = _GENEROUS_SECONDS) -> T:
    """Return the first true answer of `probe`; raises `TimeoutError` when there is none in time."""
    async with asyncio.timeout(timeout_seconds):
        while not (answer := await probe()):  # noqa: ASYNC110 - nor has this
            await asyncio.sleep(0.01)
        return answer
