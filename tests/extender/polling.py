"""Wait for what must come true, however slow the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], object], timeout_seconds: float = 10.0) -> None:
    """Return as soon as `condition` holds; raises `TimeoutError` when it does not in time."""
    async with asyncio.timeout(timeout_seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def eventually(probe: Callable[[], Awaitable[T]], timeout_seconds: float = 10.0) -> T:
    """Return the first true answer of `probe`; raises `TimeoutError` when there is none in time."""
    async with asyncio.timeout(timeout_seconds):
        while not (answer := await probe()):  # noqa: ASYNC110 - nor has this
            await asyncio.sleep(0.01)
        return answer
