"""Who may have NVML open, and when: a driver that has a client can neither be unloaded nor change its MIG slices."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Final, ParamSpec, TypeVar

import structlog

from agent.errors import NvmlUnavailable

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger()

PAUSED: Final = "PAUSED"
"""The code of `NvmlUnavailable` where NVML works, as far as we know, and is left alone."""
CLOSED: Final = "CLOSED"
"""The same where we are about to end."""


class NvmlAccess:
    """Leaves NVML alone from when it is told to; from any thread, and from a signal handler: it waits for nothing."""

    def __init__(self) -> None:
        self._paused = ""
        self._closed = False

    @property
    def paused(self) -> str:
        """Why NVML is left alone for now; empty where it is not."""
        return self._paused

    def pause(self, reason: str) -> bool:
        """Open NVML no more while there is a reason, until that is empty; returns whether it is another one than before."""
        before, self._paused = self._paused, reason
        if reason != before:
            log.info("the driver is left alone" if reason else "the driver is ours again", reason=reason or before)
        return reason != before

    def close(self) -> None:
        """Open NVML never again."""
        self._closed = True

    def reading(self, read: Callable[P, T]) -> Callable[P, T]:
        """Return what reads as `read` does; raises `NvmlUnavailable` at once while NVML is left alone."""

        def read_if_allowed(*args: P.args, **named: P.kwargs) -> T:
            if self._closed:
                raise NvmlUnavailable(CLOSED, "the agent is about to end")
            if reason := self._paused:
                raise NvmlUnavailable(PAUSED, reason)
            return read(*args, **named)

        return read_if_allowed

    def following(self, follow: Callable[[], Generator[T, None, None]]) -> Callable[[], Generator[T, None, None]]:
        """Return what follows as `follow` does, which holds NVML open, and ends with its next word once that is left alone."""

        def follow_while_allowed() -> Generator[T, None, None]:
            if self._is_allowed():
                with closing(follow()) as words:
                    for word in words:
                        yield word
                        if not self._is_allowed():
                            return

        return follow_while_allowed

    def _is_allowed(self) -> bool:
        return not (self._closed or self._paused)
