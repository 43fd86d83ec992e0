"""How long calls may wait for news, and for searches that go on beside them: now and then, and never so that others are slow.

One namespace has half of that time at most, so that its pods never use up what others may wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.kit.bounded import Bounded

MOST_SECONDS = 0.5
"""Far more than the search for any known machine takes."""
SHARE = 0.05
"""Of all time that may be spent waiting: whoever makes pods that fit nowhere, or searches that do not end, costs no more."""
NAMESPACES = 64
"""Whose stores are not full; one that is forgotten is full."""


@dataclass(slots=True)
class Patience:
    """A store of seconds that fills slowly, and one for each namespace that fills half as fast and holds half as much."""

    filled_at: float = 0.0
    """Monotonic seconds."""
    _of_all: float = 2 * MOST_SECONDS
    _of_namespaces: Bounded[str, float] = field(default_factory=lambda: Bounded(NAMESPACES))
    """Those that are not full."""

    def left(self, namespace: str, now: float) -> float:
        """Return how long a call that comes now for a pod of this namespace may wait, in seconds."""
        self._fill(SHARE * max(0.0, now - self.filled_at))
        self.filled_at = now
        return min(self._of_all, self._left_in(namespace))

    def spend(self, namespace: str, seconds: float) -> None:
        """Take note that a call has waited."""
        self._of_all = max(0.0, self._of_all - seconds)
        self._of_namespaces.put(namespace, max(0.0, self._left_in(namespace) - seconds))

    def _left_in(self, namespace: str) -> float:
        left = self._of_namespaces.get(namespace)
        return MOST_SECONDS if left is None else left

    def _fill(self, seconds: float) -> None:
        self._of_all = min(2 * MOST_SECONDS, self._of_all + seconds)
        for namespace in [*self._of_namespaces]:
            left = self._left_in(namespace) + seconds / 2
            if left < MOST_SECONDS:
                self._of_namespaces.replace(namespace, left)
            else:
                self._of_namespaces.pop(namespace)
