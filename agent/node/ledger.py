"""The ledger of our own node, read when it is needed, and heard of when it changes.

What a read brings is what stood in the API at some moment after the read began. When the API is slow, the last ledger that
was read or heard of has to do, and its reader is told so. A claim is written before its pod is bound, so our watch of the node
has mostly told of it before the kubelet asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import structlog

from agent.errors import ApiError
from topology.annotations import keys
from topology.annotations.records import Ledger, decode_ledger
from topology.errors import PayloadError

log = structlog.get_logger()

_READERS = 2
"""Reads that may hang at once; while they do, nobody starts another one."""


@dataclass(frozen=True, slots=True)
class LedgerReading:
    """A ledger, and whether it is from just now."""

    ledger: Ledger | None
    """`None` on a node that has none, or before the first one is known."""
    fresh: bool


class NodeLedger:
    """What is known of one node's ledger, from any thread; `annotations` reads them from the API, which may take its time."""

    def __init__(self, annotations: Callable[[], Mapping[str, str]]) -> None:
        self._annotations = annotations
        self._turn = Lock()
        self._known: Ledger | None = None

    @property
    def known(self) -> Ledger | None:
        """The latest one that was read or heard of."""
        return self._known

    def read(self) -> Ledger | None:
        """Return the ledger of now, or the latest that is known when that is illegible; raises `ApiError`."""
        text = self._annotations().get(keys.LEDGER)
        return self.heard(text) if text is not None else None

    def heard(self, text: str) -> Ledger | None:
        """Take in a ledger of some moment and return it; of two, the one of the later generation is remembered."""
        try:
            ledger = decode_ledger(text)
        except PayloadError as error:
            log.error("the ledger cannot be read", reason=str(error))
            return self._known
        with self._turn:
            if self._known is None or self._known.generation <= ledger.generation:
                self._known = ledger
        return ledger


class LedgerReader:
    """Reads a ledger in time, on one event loop."""

    def __init__(self, ledger: NodeLedger) -> None:
        self._ledger = ledger
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger")
        self._under_way = 0

    async def read(self, timeout_seconds: float) -> LedgerReading:
        """Return the ledger of now, or after `timeout_seconds` the latest one that is known."""
        if self._under_way >= _READERS:
            return LedgerReading(self._ledger.known, fresh=False)
        self._under_way += 1
        reading = asyncio.get_running_loop().run_in_executor(self._threads, self._ledger.read)
        reading.add_done_callback(self._done)
        try:
            async with asyncio.timeout(timeout_seconds):
                return LedgerReading(await asyncio.shield(reading), fresh=True)
        except (TimeoutError, ApiError) as error:
            log.warning("the ledger could not be read now", reason=str(error) or "too slow")
            return LedgerReading(self._ledger.known, fresh=False)

    def close(self) -> None:
        """Start no more reads; those that hang are left to their own deadline."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, reading: asyncio.Future[Ledger | None]) -> None:
        self._under_way -= 1
        if not reading.cancelled():
            reading.exception()  # a late failure has nobody left to tell
