"""Work for people gives way to the calls of kube-scheduler.

A page takes turns of the event loop, and no turn begins while a call is answered. So a call waits for one turn at most. Longer
turns meet fewer calls, and shorter ones cost each of them less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from extender.kit.turns import Turn, in_turns

Answer = TypeVar("Answer")
Item = TypeVar("Item")

MOST_GIVEN_SECONDS: Final = 0.02
"""Between two turns: a page is ready in a second or two, however many calls there are."""


class CallsFirst:
    """The calls that are being answered."""

    def __init__(self) -> None:
        self._calls = 0
        self._answered = asyncio.Event()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let pages wait while the context is open."""
        self._calls += 1
        self._answered.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._answered.set()

    async def gap(self) -> None:
        """Let others have their turns, and let calls end, for `MOST_GIVEN_SECONDS` at most."""
        await asyncio.sleep(0)
        if self._calls:
            with suppress(TimeoutError):
                async with asyncio.timeout(MOST_GIVEN_SECONDS):
                    await self._answered.wait()

    async def result(self, steps: Generator[None, None, Answer]) -> Answer:
        """Take the steps in turns, and return what they come to."""
        turn = Turn()

        async def give_way() -> None:
            if turn.is_over():
                await self.gap()
                turn.begin()

        return await in_turns(steps, give_way)

    async def listed(self, items: Iterable[Item]) -> list[Item]:
        """Return items that are made as they are taken, such as the rows of a page."""

        def steps() -> Generator[None, None, list[Item]]:
            taken = list[Item]()
            for item in items:
                taken.append(item)
                yield
            return taken

        return await self.result(steps())
