"""Listens for critical errors on a thread of its own, so that a GPU that is going takes no new pods some seconds later."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from threading import Event, Thread

import structlog

from agent.errors import NvmlUnavailable
from agent.gpus.critical_errors import Coverage, CriticalError
from agent.gpus.health.gpu_health import GpuHealth

log = structlog.get_logger()

_PAUSE_SECONDS = 5.0
"""Before NVML is opened again after it has failed."""
_PARTIAL_SECONDS = 30.0
"""How long to listen to some of the GPUs only: one that was lost may be back."""


class XidWatch:
    """Runs from `start` to `close`.

    Args:
        follow: Yields as `xid_events.follow_xids` does.
        health: Is told.
        discover: Is called when a GPU has become unhealthy, or perhaps has.

    """

    def __init__(
        self,
        follow: Callable[[], Generator[Coverage | CriticalError | None, None, None]],
        health: GpuHealth,
        discover: Callable[[], None],
    ) -> None:
        self._follow = follow
        self._health = health
        self._discover = discover
        self._closing = Event()

    def start(self) -> None:
        """Start listening; the thread is not waited for in the end: a call into a dead driver can hang for ever."""
        Thread(target=self._run, name="xids", daemon=True).start()

    def close(self) -> None:
        """Let NVML go, within a moment."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._listen()
            except NvmlUnavailable as error:
                self._covers(Coverage((error.code,)))
            self._closing.wait(_PAUSE_SECONDS)

    def _listen(self) -> None:
        end = float("inf")
        with closing(self._follow()) as events:
            for news in events:
                match news:
                    case Coverage(untold):
                        self._covers(news)
                        end = time.monotonic() + _PARTIAL_SECONDS if untold else end
                    case CriticalError(uuid, number):
                        if self._health.happened(news) or not uuid:
                            log.warning("critical error", gpu=uuid, xid=number)
                            self._discover()
                if self._closing.is_set() or time.monotonic() > end:
                    return

    def _covers(self, coverage: Coverage) -> None:
        """Take in how well we hear now; where it has changed, a GPU may have been lost, or be back."""
        if coverage != self._health.coverage:
            self._health.coverage = coverage
            say = log.warning if coverage.untold else log.info
            say("listening for critical errors", untold=", ".join(coverage.untold))
            self._discover()
