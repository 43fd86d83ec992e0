"""The lines of one watch on their way to one client: always in order; late, cut, silent or spoiled as chance will have it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from random import Random

import msgspec

from benchmarks.simulated.double.api import Stream
from benchmarks.simulated.double.resources import Object
from benchmarks.simulated.double.status import StatusError
from benchmarks.simulated.double.store import ObjectStore
from tests.simulation.mix import STREAM_FAULTS
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.world.http_faults import StreamFault, spoilt_line

_BOOKMARK_SECONDS = 4.0
_LATEST_SECONDS = 30.0
_END = b""


class Feed:
    """One watch; the server tells it of every write at once, and the client hears of it when it arrives."""

    def __init__(
        self, client: str, stream: Stream, store: ObjectStore, storm: Storm, trace: Trace, random: Random
    ) -> None:
        self._stream = stream
        self._store = store
        self._storm = storm
        self._random = random
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._told = asyncio.Event()
        self._fault = storm.choose(STREAM_FAULTS, random)
        self._late_seconds = 0.0
        self._spoiled_at = float("inf")
        if self._fault is StreamFault.LATE:
            self._late_seconds = random.uniform(1.0, _LATEST_SECONDS)
        elif self._fault is not None:
            self._spoiled_at = self._now() + random.uniform(0.2, stream.timeout_seconds)
        if self._fault is not None:
            trace.fault(self._fault, client)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield what arrives, until the watch ends; raises `ConnectionResetError`."""
        unsubscribe = self._store.subscribe(self._poll)
        beat = asyncio.create_task(self._beat())
        try:
            self._poll()
            while (line := await self._next_line()) is not None:
                if line is _END:
                    return
                cut = self._random.randrange(len(line)) if self._random.random() < 0.05 else 0
                for part in (line[:cut], line[cut:]):
                    if part:
                        yield part
            async for part in self._spoiled():
                yield part
        finally:
            beat.cancel()
            unsubscribe()

    async def _next_line(self) -> bytes | None:
        """Return the next line when it is due, or `None` once the stream is spoiled."""
        while not self._under_way:
            self._told.clear()
            try:
                async with asyncio.timeout_at(min(self._spoiled_at, 1e9)):
                    await self._told.wait()
            except TimeoutError:
                return None
        due, line = self._under_way.popleft()
        await self._storm.sleep(due - self._now())
        return line if self._now() < self._spoiled_at else None

    async def _spoiled(self) -> AsyncGenerator[bytes]:
        assert self._fault is not None
        if self._fault is StreamFault.SILENT:
            await asyncio.Event().wait()
        if last := spoilt_line(self._fault):
            yield last
        if self._fault is StreamFault.BROKEN:
            raise ConnectionResetError("stream reset")

    async def _beat(self) -> None:
        """Send bookmarks, and the end when the watch's time is over."""
        end = self._now() + self._stream.timeout_seconds
        while self._now() + _BOOKMARK_SECONDS < end:
            await asyncio.sleep(_BOOKMARK_SECONDS)
            self._bookmark()
        await asyncio.sleep(end - self._now())
        self._bookmark()
        self._send(_END)

    def _poll(self) -> None:
        try:
            for kind, item in self._stream.watch.poll():
                self._send(_line(kind, item))
        except StatusError as error:
            self._send(_line("ERROR", error.status))
            self._send(_END)

    def _bookmark(self) -> None:
        for kind, item in self._stream.watch.bookmark():
            self._send(_line(kind, item))

    def _send(self, line: bytes) -> None:
        delay = self._late_seconds + self._random.uniform(0.001, 0.02)
        due = self._now() + (0.0 if self._storm.is_over else delay)
        if self._under_way:
            due = max(due, self._under_way[-1][0])
        self._under_way.append((due, line))
        self._told.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _line(kind: str, item: Object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": item}) + b"\n"
