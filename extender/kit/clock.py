"""The time as it is handed in: the verbs and the protocol never read a clock of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

STEP_SECONDS: Final = 5.0
"""A wall clock that differs by more has stepped."""
BELIEVED_AFTER_SECONDS: Final = 60.0
"""For which a step has to last before it counts: a clock may be wrong for a moment."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks."""

    monotonic: float
    """Seconds since an arbitrary start; deadlines and expiry are measured with it."""
    wall: float
    """Seconds since 1970; compared with a pod's creation and shown to people."""

    def age_seconds(self, timestamp: str | None) -> float:
        """Return how long ago an API timestamp was; 0 for one that is missing, unreadable, before 1970 or still to come.

        >>> Instant(monotonic=0.0, wall=90.0).age_seconds("1970-01-01T00:01:00Z")
        30.0
        """
        try:
            then = datetime.fromisoformat(timestamp or "").timestamp()
        except (ValueError, OverflowError):  # of the first and last days that a calendar has
            return 0.0
        return max(0.0, self.wall - then) if then >= 0 else 0.0


Clock = Callable[[], Instant]


class SteadyClock:
    """Both clocks of a machine; a step of the wall clock counts once it has lasted."""

    def __init__(self, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        """Believe what the wall clock says now."""
        self._monotonic, self._wall = monotonic, wall
        self._zero = wall() - monotonic()
        """What the wall clock says where the monotonic one is at zero."""
        self._stepped: tuple[float, float] | None = None
        """The same after a step, and since when, in monotonic seconds."""

    def __call__(self) -> Instant:
        """Return this moment."""
        monotonic = self._monotonic()
        zero = self._wall() - monotonic
        if abs(zero - self._zero) < STEP_SECONDS:
            self._stepped = None
        elif self._stepped is None or abs(zero - self._stepped[0]) >= STEP_SECONDS:
            self._stepped = zero, monotonic
        elif monotonic - self._stepped[1] >= BELIEVED_AFTER_SECONDS:
            self._zero, self._stepped = zero, None
        return Instant(monotonic, monotonic + self._zero)
