"""Locks by key, such as a node's name: work on one key follows one another, and a lock that nobody holds is forgotten."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakValueDictionary


class KeyedLock:
    """The lock of one key, as one holder has it or not."""

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
        """Let the next holder have it, if it is held."""
        if self._is_held:
            self._is_held = False
            self._lock.release()


class KeyedLocks:
    """The locks of all keys that are in use."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> KeyedLock:
        """Return the lock of a key, for one holder; it is not held yet."""
        return KeyedLock(self.plain(key))

    def plain(self, key: str) -> asyncio.Lock:
        """Return the same for work that holds it to its end."""
        return self._locks.setdefault(key, asyncio.Lock())
