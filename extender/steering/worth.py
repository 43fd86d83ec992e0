"""Whether nominations come true; where many do not, none is made for a while: to steer must never be slower."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

LOOKED_AT: Final = 32
"""Nominations that have ended, the last ones."""
ENOUGH: Final = 16
"""So many say something: the first ones of a queue may meet kube-scheduler at its head."""
TOLERATED: Final = 0.25
"""Of these, may have come to nothing."""
FIRST_PAUSE_SECONDS: Final = 60.0
LONGEST_PAUSE_SECONDS: Final = 960.0


@dataclass(slots=True)
class Worth:
    """What came of the nominations of one extender."""

    paused_until: float = 0.0
    """Monotonic seconds."""
    _pause_seconds: float = FIRST_PAUSE_SECONDS
    _came_true: deque[bool] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))

    def ended(self, now: float, *, came_true: bool) -> None:
        """Take note of the end of one; too many in vain bring a pause, which is twice as long each time until all come true."""
        found = self._came_true
        found.append(came_true)
        if len(found) >= ENOUGH and found.count(False) > TOLERATED * len(found):
            self.paused_until = now + self._pause_seconds
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            found.clear()
        elif len(found) == LOOKED_AT and all(found):
            self._pause_seconds = FIRST_PAUSE_SECONDS
