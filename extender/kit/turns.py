"""Work in steps on the event loop: between two of them, or after some milliseconds of them, others have their turns.

What calls wait for takes one turn after the other. What is in no hurry pauses between shorter ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import Final, TypeVar

Answer = TypeVar("Answer")
Item = TypeVar("Item")

Gap = Callable[[], Awaitable[object]]
"""What comes between two steps."""
OTHERS_FIRST: Final[Gap] = partial(asyncio.sleep, 0)

TURN_SECONDS: Final = 0.002
"""Far less than a call takes on its way: a few pieces of work of that length may come between its parts."""
SHORT_TURN_SECONDS: Final = 0.001
PAUSE_SECONDS: Final = 0.003
"""A quarter of the time at most is taken from calls: a call has several parts, and each part may come behind a turn."""


class Turn:
    """The time that one piece of work has had the event loop for."""

    def __init__(self, seconds: float = TURN_SECONDS, pause_seconds: float = 0.0) -> None:
        """Last `seconds`, and leave the loop to others for `pause_seconds` at least before the next one."""
        self._time = asyncio.get_running_loop().time
        self._seconds = seconds
        self._pause_seconds = pause_seconds
        self.begin()

    def begin(self) -> None:
        """Begin, or begin again."""
        self._until = self._time() + self._seconds

    def is_over(self) -> bool:
        """Whether it is time that others have their turns."""
        return self._time() >= self._until

    async def end(self) -> None:
        """Let them have theirs; then the next one begins."""
        await asyncio.sleep(self._pause_seconds)
        self.begin()


async def in_turns(steps: Generator[None, None, Answer], gap: Gap = OTHERS_FIRST) -> Answer:
    """Take the steps one after the other, with a gap after each, and return what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        await gap()


async def in_short_turns(steps: Iterable[None]) -> None:
    """Take many small steps, as many at once as a turn has time for."""
    await _in(Turn(), steps)


async def with_pauses(steps: Iterable[None]) -> None:
    """Take many small steps that nobody waits for."""
    await _in(Turn(SHORT_TURN_SECONDS, PAUSE_SECONDS), steps)


async def _in(turn: Turn, steps: Iterable[None]) -> None:
    for _ in steps:
        if turn.is_over():
            await turn.end()
