"""One at a time writes a node's ledger: safety does not depend on it, but side by side they lose time on conflicts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakValueDictionary


class NodeLock:
    """The lock of one node, as one bind has it or not."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._is_held = False

    async def take(self, within_seconds: float) -> bool:
        """Wait for it, but not for longer; returns whether it is held."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._lock.acquire()
            self._is_held = True
        return self._is_held

    def leave(self) -> None:
        """Let the next bind have it, if it is held."""
        if self._is_held:
            self._is_held = False
            self._lock.release()


class NodeLocks:
    """Those of all nodes that somebody writes to."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, node: str) -> NodeLock:
        """Return the lock of a node, for one bind; it is not held yet."""
        return NodeLock(self.plain(node))

    def plain(self, node: str) -> asyncio.Lock:
        """Return the same for work that holds it to its end."""
        return self._locks.setdefault(node, asyncio.Lock())
