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
                made = await make()
                self._pages.put(question, (_now(), made))
                return made
        finally:
            self._waiting -= 1

    def _fresh(self, question: str) -> RenderedPage | None:
        made_at, page = self._pages.get(question) or (0.0, None)
        return page if page and _now() - made_at < SECONDS else None


def _now() -> float:
    return asyncio.get_running_loop().time()
