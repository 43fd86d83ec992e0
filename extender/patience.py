"""How long calls may wait for news, and for searches that go on beside them: now and then, and never so that others are slow."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SECONDS = 0.5
"""Far more than the search for any known machine takes."""
SHARE = 0.05
"""Of all time that may be spent waiting: whoever makes pods that fit nowhere, or searches that do not end, costs no more."""


@dataclass(slots=True)
class Patience:
    """A store of seconds that fills slowly."""

    seconds: float = MOST_SECONDS
    filled_at: float = 0.0
    """Monotonic seconds."""

    def left(self, now: float) -> float:
        """Return how long a call that comes now may wait, in seconds."""
        self.seconds = min(MOST_SECONDS, self.seconds + SHARE * max(0.0, now - self.filled_at))
        self.filled_at = now
        return self.seconds

    def spend(self, seconds: float) -> None:
        """Take note that a call has waited."""
        self.seconds = max(0.0, self.seconds - seconds)
