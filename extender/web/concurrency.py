"""Who is served now: bounds on what all callers cost together, so that a crowd is refused soon and cannot exhaust memory.

Only those who have sent their whole request take a place in line. Slow peers keep nobody out, whatever their number. What
they have sent counts against the memory for bodies, and they are cut at the receive deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect
from starlette.types import Receive


class Crowded(Exception):
    """More is asked at once than there is room for; whoever asked may come again."""


class TooLarge(Exception):
    """A request is larger than any that makes sense."""


class Bodies:
    """The memory for requests that are being received or wait in line, of all connections together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0

    @asynccontextmanager
    async def received(self, receive: Receive, max_bytes: int) -> AsyncIterator[bytes]:
        """Give a request's whole body; raises `Crowded`, `TooLarge`, and `ClientDisconnect` when the peer is gone first."""
        chunks, held_bytes, more = list[bytes](), 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk = message.get("body", b"")
                chunks.append(chunk)
                held_bytes += len(chunk)
                self._held_bytes += len(chunk)
                if held_bytes > max_bytes:
                    raise TooLarge("the body is too large")
                if self._held_bytes > self._max_bytes:
                    raise Crowded("too much is being received")
                more = message.get("more_body", False)
            yield b"".join(chunks)
        finally:
            self._held_bytes -= held_bytes


class CallQueue:
    """Calls of one verb: `at_once` are worked on, `waiting` more stand in line, and nobody else is let in."""

    def __init__(self, bodies: Bodies, max_bytes: int, at_once: int, waiting: int) -> None:
        self._bodies = bodies
        self._max_bytes = max_bytes
        self._places = at_once + waiting
        self._present = 0
        self._work = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def admitted(self, receive: Receive) -> AsyncIterator[bytes]:
        """Give a request's body when its turn has come; raises `Crowded` at once, `TooLarge` and `ClientDisconnect`."""
        self._check()
        async with self._bodies.received(receive, self._max_bytes) as body:
            self._check()
            self._present += 1
            try:
                async with self._work:
                    await asyncio.sleep(0)  # whoever came at the same moment is given a place, or none, before any work
                    yield body
            finally:
                self._present -= 1

    def _check(self) -> None:
        if self._present >= self._places:
            raise Crowded("too many calls are waiting")
