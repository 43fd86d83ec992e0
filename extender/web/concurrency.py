"""Who is served now: bounds on what all callers cost together, so that a crowd is refused soon and cannot exhaust memory.

Only those who have sent their whole request take a place in line. Slow peers keep nobody out, whatever their number: what they
have sent counts against the memory for bodies, and they are cut at the receive deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request


class Crowded(Exception):
    """More is asked at once than there is room for; whoever asked may come again."""


class Bodies:
    """The memory for requests that are being received or wait in line, of all connections together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[bytes]:
        """Give a request's whole body; raises `Crowded`, and `ClientDisconnect` when the peer is gone first."""
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                self._held_bytes += len(chunk)
                if self._held_bytes > self._max_bytes:
                    raise Crowded("too much is being received")
            yield bytes(body)
        finally:
            self._held_bytes -= len(body)


class Line:
    """Calls of one verb: `at_once` are worked on, `waiting` more stand in line, and nobody else is let in."""

    def __init__(self, bodies: Bodies, at_once: int, waiting: int) -> None:
        self._bodies = bodies
        self._places = at_once + waiting
        self._present = 0
        self._work = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def admitted(self, request: Request) -> AsyncIterator[bytes]:
        """Give a request's body when its turn has come; raises `Crowded` at once, and `ClientDisconnect`."""
        self._check()
        async with self._bodies.received(request) as body:
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
