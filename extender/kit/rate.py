"""How often something may be done: so many times a second on average, and some at once after a pause."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Rate:
    """A store of permits that fills steadily; it is full at first."""

    per_second: float
    at_once: int
    """Permits of a full store."""
    _left: float = field(init=False)
    _filled_at: float = 0.0
    """Monotonic seconds."""

    def __post_init__(self) -> None:
        """Begin with a full store."""
        self._left = float(self.at_once)

    def take(self, now: float) -> bool:
        """Take a permit at `now` (monotonic seconds); returns whether there was one.

        >>> rate = Rate(per_second=2, at_once=2)
        >>> [rate.take(now) for now in (0.0, 0.0, 0.0, 0.5, 0.6)]
        [True, True, False, True, False]
        """
        self._left = min(float(self.at_once), self._left + self.per_second * max(0.0, now - self._filled_at))
        self._filled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
