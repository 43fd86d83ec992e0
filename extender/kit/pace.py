"""How fast kube-scheduler may go: it sends each bind while it schedules the next pods, however many are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

BINDS: Final = 32
"""Under way at once, as many as there are connections to the API server: more would wait for these, and some for too long."""
PATIENCE_SECONDS: Final = 0.5
"""For which one call is kept waiting at most, so that other pods have their turns however slow binds are."""


class Pace:
    """Counts the binds that are under way, and has others wait for fewer."""

    def __init__(self) -> None:
        self._under_way = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @contextmanager
    def bind(self) -> Iterator[None]:
        """Count one."""
        self._under_way += 1
        self._tell()
        try:
            yield
        finally:
            self._under_way -= 1
            self._tell()

    async def room(self) -> None:
        """Wait until there is room for another bind, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._has_room.wait()

    def _tell(self) -> None:
        if self._under_way < BINDS:
            self._has_room.set()
        else:
            self._has_room.clear()
