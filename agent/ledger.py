"""The ledger of our own node, read when it is needed and not before.

What a read brings is what stood in the API at some moment after the read began. When the API is slow, the ledger that was read
last has to do, and its reader is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from agent.errors import ApiError
from topology import keys
from topology.errors import PayloadError
from topology.records import Ledger, decode_ledger

log = structlog.get_logger()

_READERS = 2
"""Reads that may hang at once; while they do, nobody starts another one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A ledger, and whether it is from just now."""

    ledger: Ledger | None
    """`None` on a node that never had one, or before the first read."""
    fresh: bool


class LedgerReader:
    """Reads the node's annotations with `read`, which blocks and raises `ApiError`."""

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger")
        self._under_way = 0
        self._known: Ledger | None = None

    def learn(self, annotations: Mapping[str, str]) -> None:
        """Take in the node's annotations, whoever read them; any thread may call this."""
        text = annotations.get(keys.LEDGER)
        try:
            self._known = decode_ledger(text) if text is not None else None
        except PayloadError as error:
            log.error("the ledger cannot be read", reason=str(error))

    async def read(self, timeout_seconds: float) -> Reading:
        """Return the ledger of now, or after `timeout_seconds` the last one that is known."""
        if self._under_way >= _READERS:
            return Reading(self._known, fresh=False)
        self._under_way += 1
        reading = asyncio.get_running_loop().run_in_executor(self._threads, self._read)
        reading.add_done_callback(self._done)
        try:
            self.learn(await asyncio.wait_for(asyncio.shield(reading), timeout_seconds))
        except (TimeoutError, ApiError) as error:
            log.warning("the ledger could not be read now", reason=str(error) or "too slow")
            return Reading(self._known, fresh=False)
        return Reading(self._known, fresh=True)

    def close(self) -> None:
        """Start no more reads; those that hang are left to their own deadline."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, reading: asyncio.Future[Mapping[str, str]]) -> None:
        self._under_way -= 1
        if not reading.cancelled():
            reading.exception()  # a late failure has nobody left to tell
