"""Visits to NVML and the file system from an event loop: on threads, and those to NVML one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from agent.gpus.nvml.patience import aside

T = TypeVar("T")

_ANSWER_SECONDS = 5.0
"""For one visit to NVML, and those before it."""


class Visits:
    """Of one event loop."""

    def __init__(self, answer_seconds: float = _ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._turn = asyncio.Lock()
        self._asking: Future[Any] | None = None

    async def ask(self, call: Callable[[], T]) -> T:
        """Ask NVML; raises `TimeoutError`, and then the call is left to itself, and the next one waits for it."""
        async with asyncio.timeout(self._answer_seconds), self._turn:
            if self._asking and not self._asking.done():
                await asyncio.wait([asyncio.wrap_future(self._asking)])
            asked = self._asking = aside(call)
            return await asyncio.wrap_future(asked)

    async def elsewhere(self, call: Callable[[], T]) -> T:
        """Look at files, which does not hang."""
        return await asyncio.to_thread(call)
