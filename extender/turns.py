"""Work in steps on the event loop: between two of them, or after some milliseconds of them, others have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

from topology.effort import Search

Answer = TypeVar("Answer")

TURN_SECONDS: Final = 0.002
"""Far less than a call takes on its way: a few pieces of work of that length may come between its parts."""


class Turn:
    """The time that one piece of work has had the event loop for."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + TURN_SECONDS

    def is_over(self) -> bool:
        """Whether it is time that others have their turns."""
        return self._time() >= self._until

    async def end(self) -> None:
        """Let them have theirs; then the next one begins."""
        await asyncio.sleep(0)
        self._until = self._time() + TURN_SECONDS


async def in_turns(steps: Search[Answer]) -> Answer:
    """Take the steps one after the other, and return what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        await asyncio.sleep(0)


async def in_short_turns(steps: Iterable[None]) -> None:
    """Take many small steps, as many at once as a turn has time for."""
    turn = Turn()
    for _ in steps:
        if turn.is_over():
            await turn.end()
