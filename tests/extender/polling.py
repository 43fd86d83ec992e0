"""Wait for what must come true, however slow the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.waiting import account, patience

T = TypeVar("T")

_GENEROUS_SECONDS = 60.0
"""More than anything takes on a machine that does much else: who asserts how soon something comes true says so."""


async def until(condition: Callable[[], object], timeout_seconds: float = _GENEROUS_SECONDS) -> None:
    """Return as soon as `condition` holds; raises `TimeoutError`, with what it saw last, when it does not in time."""
    answer: object = None
    timeout_seconds = patience(timeout_seconds)
    try:
        async with asyncio.timeout(timeout_seconds) as limit:
            while not (answer := condition()):  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)
    except TimeoutError as error:
        raise _explained(error, limit, condition, answer, timeout_seconds) from error


async def eventually(probe: Callable[[], Awaitable[T]], timeout_seconds: float = _GENEROUS_SECONDS) -> T:
    """Return the first true answer of `probe`; raises `TimeoutError`, with the last answer, when there is none in time."""
    answer: T | None = None
    timeout_seconds = patience(timeout_seconds)
    try:
        async with asyncio.timeout(timeout_seconds) as limit:
            while not (answer := await probe()):  # noqa: ASYNC110 - nor has this
                await asyncio.sleep(0.01)
            return answer
    except TimeoutError as error:
        raise _explained(error, limit, probe, answer, timeout_seconds) from error


def _explained(
    error: TimeoutError, limit: asyncio.Timeout, condition: Callable[[], object], answer: object, seconds: float
) -> TimeoutError:
    """Return the error to raise: one that the condition itself has raised stays as it is."""
    return TimeoutError(account(condition, answer, seconds)) if limit.expired() else error
