"""The time as it is handed in: the verbs and the protocol never read a clock of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks."""

    monotonic: float
    """Seconds since an arbitrary start; deadlines and expiry are measured with it."""
    wall: float
    """Seconds since 1970; compared with a pod's creation and shown to people, so a wrong clock can do no harm."""

    def age_seconds(self, timestamp: str | None) -> float:
        """Return how long ago an API timestamp was; 0 for one that is missing, unreadable or still to come.

        >>> Instant(monotonic=0.0, wall=90.0).age_seconds("1970-01-01T00:01:00Z")
        30.0
        """
        try:
            then = datetime.fromisoformat(timestamp or "").timestamp()
        except ValueError:
            return 0.0
        return max(0.0, self.wall - then)


Clock = Callable[[], Instant]
