"""Pages that were made a moment ago: however many people look, each page is made once in a while, and one at a time.

The event loop that makes them also answers kube-scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from extender.kit.bounded import Bounded
from extender.web.concurrency import Crowded

SECONDS: Final = 2.0
"""For which a page is shown again."""
KEPT: Final = 64
WAITING: Final = 16
"""Askers at most that have to wait until a page is made; others are refused."""
PAUSE_RATIO: Final = 3
"""Times what a page took, until the next one is begun: pages get a quarter of the event loop's time, and calls the rest."""
LONGEST_PAUSE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """What is shown."""

    text: bytes
    status: int = 200
    media_type: str = "text/html"

    @property
    def tag(self) -> str:
        """An ETag: equal pages have equal ones."""
        return f'"{blake2b(self.text, digest_size=12).hexdigest()}"'


class Remembered:
    """By what was asked."""

    def __init__(self) -> None:
        self._pages = Bounded[str, tuple[float, RenderedPage]](KEPT)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0
        self._not_before = 0.0

    async def page(self, question: str, make: Callable[[], Awaitable[RenderedPage]]) -> RenderedPage:
        """Return the page as it is now, or was not long before; raises `Crowded`."""
        if page := self._fresh(question):
            return page
        if self._waiting >= WAITING:
            raise Crowded("too many people are waiting for pages")
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                if page := self._fresh(question):  # somebody who asked the same was first
                    return page
                await asyncio.sleep(self._not_before - _now())
                made = await self._made(make)
                self._pages.put(question, (_now(), made))
                return made
        finally:
            self._waiting -= 1

    async def _made(self, make: Callable[[], Awaitable[RenderedPage]]) -> RenderedPage:
        begun_at = _now()
        try:
            return await make()
        finally:
            ended_at = _now()
            self._not_before = ended_at + min(PAUSE_RATIO * (ended_at - begun_at), LONGEST_PAUSE_SECONDS)

    def _fresh(self, question: str) -> RenderedPage | None:
        made_at, page = self._pages.get(question) or (0.0, None)
        return page if page and _now() - made_at < SECONDS else None


def _now() -> float:
    return asyncio.get_running_loop().time()
