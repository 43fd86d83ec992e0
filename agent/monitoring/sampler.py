"""Reads what GPUs do every few seconds, on a thread of its own: neither a scrape nor the agent's loop waits for NVML."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import structlog

from agent.errors import NvmlUnavailable
from agent.gpus.activity import Activity, ActivityPort

log = structlog.get_logger()

_STALE_AFTER: Final = 3
"""Intervals: what is older is told no more, so that a driver that hangs leaves a gap and not a straight line."""


class Sampler:
    """Runs from `start` to `close`.

    Args:
        read: Where it is read; may hang.
        wanted: Whether to read at all, asked before each time.
        interval_seconds: Between two.
        took: Hears how many seconds each took.
        clock: monotonic, in seconds.

    """

    def __init__(
        self,
        read: ActivityPort,
        wanted: Callable[[], bool],
        interval_seconds: float,
        took: Callable[[float], None] = lambda seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._wanted = wanted
        self._interval_seconds = interval_seconds
        self._took = took
        self._clock = clock
        self._closing = Event()
        self._last: tuple[float, tuple[Activity, ...]] | None = None
        self._works = True

    def start(self) -> None:
        """Start reading; the thread is not waited for in the end: a call into a dead driver can hang for ever."""
        Thread(target=self._run, name="sampler", daemon=True).start()

    def close(self) -> None:
        """Read no more."""
        self._closing.set()

    def samples(self) -> tuple[Activity, ...]:
        """Return what was read last, or nothing where that is long ago; from any thread."""
        if self._last is None:
            return ()
        read_at, samples = self._last
        return samples if self._clock() - read_at < _STALE_AFTER * self._interval_seconds else ()

    def turn(self) -> None:
        """Read once, if that is wanted."""
        if not self._wanted():
            self._last = None
            return
        started = self._clock()
        try:
            samples = self._read()
        except NvmlUnavailable as error:
            self._say(works=False, reason=str(error))
            return
        self._say(works=True)
        ended = self._clock()
        self._last = ended, samples
        self._took(ended - started)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self.turn()
            except Exception:
                log.exception("what GPUs do could not be read, and is tried again")
            self._closing.wait(self._interval_seconds)

    def _say(self, *, works: bool, reason: str = "") -> None:
        if works is not self._works:
            self._works = works
            (log.info if works else log.warning)("sampling", works=works, reason=reason)
