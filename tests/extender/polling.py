"""Wait for what must come true, however slow the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], timeout_seconds: float = 10.0) -> None:
    """Return as soon as `condition` holds; raises `TimeoutError` when it does not in time."""
    async with asyncio.timeout(timeout_seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
