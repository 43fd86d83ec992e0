"""A wall clock that elapses as the monotonic clock does, and says when the real one steps."""

from __future__ import annotations

from collections.abc import Callable

import structlog

log = structlog.get_logger()

_STEP_SECONDS = 5.0
"""Smaller steps than this, such as a leap second, change no hold by much."""


class SteppingClock:
    """Seconds since the epoch.

    Args:
        wall: the real clock, which may step.
        monotonic: seconds since the machine was started; `None`: `wall` never steps.
        zero: what the wall clock said when the machine was started, as an earlier agent saw it; `None`: not known.
        stepped: hears of each step in seconds, before the time after it is returned.

    """

    def __init__(
        self,
        wall: Callable[[], float],
        monotonic: Callable[[], float] | None,
        zero: float | None,
        stepped: Callable[[float], None],
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._stepped = stepped
        self.zero = zero
        """What the wall clock said, as of now, when the machine was started; `None` where that is not known."""

    def __call__(self) -> float:
        """Return the time."""
        if self._monotonic is None:
            return self._wall()
        monotonic = self._monotonic()
        zero = self._wall() - monotonic
        if self.zero is None:
            self.zero = zero
        elif abs(step := zero - self.zero) >= _STEP_SECONDS:
            log.warning("the wall clock has stepped", seconds=round(step))
            self.zero = zero
            self._stepped(step)
        return monotonic + self.zero
