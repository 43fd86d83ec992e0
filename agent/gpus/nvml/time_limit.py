"""Calls into NVML with a time limit: a call into a dead driver can hang for ever, and its caller must not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, TypeVar

from agent.errors import NvmlUnavailable

T = TypeVar("T")

TIMED_OUT: Final = "TIMEOUT"
"""The code of `NvmlUnavailable` where a call has not returned in time."""


class NvmlCalls:
    """Call NVML on threads of its own, never two at once; a call that hangs is left to itself.

    Use each on one thread, or on one event loop.

    Args:
        limit_seconds: The longest wait for an answer.

    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._turn = asyncio.Lock()
        self._latest: Future[Any] | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Return what the function returns; raise `NvmlUnavailable` after the limit, and at once while an earlier call hangs."""
        if self._latest is not None and not self._latest.done():
            raise _hangs()
        answer = _on_a_thread(function)
        self._latest = answer
        try:
            return answer.result(self._limit_seconds)
        except TimeoutError:
            raise _hangs() from None

    async def call_async(self, function: Callable[[], T]) -> T:
        """Return what the function returns; raise `NvmlUnavailable` after the limit, which includes the calls before it."""
        try:
            async with asyncio.timeout(self._limit_seconds), self._turn:
                if self._latest is not None and not self._latest.done():  # it hangs, or its caller was cancelled
                    await asyncio.wait([asyncio.wrap_future(self._latest)])
                answer = _on_a_thread(function)
                self._latest = answer
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise _hangs() from None


def _hangs() -> NvmlUnavailable:
    return NvmlUnavailable(TIMED_OUT, "NVML hangs: a call into the driver does not return")


def _on_a_thread(function: Callable[[], T]) -> Future[T]:
    """Call on a daemon thread, for which the process does not wait when it ends."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, name="nvml", daemon=True).start()
    return answer
