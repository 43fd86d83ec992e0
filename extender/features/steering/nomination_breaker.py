"""Whether nominations come true; where many do not, none is made for a while: to steer must never be slower.

Each namespace has its own count and its own pauses: one tenant's pods never switch steering off for others. All namespaces pause
together only where nominations come to nothing in many of them; each has one vote.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.kit.backoff import Pauses
from extender.kit.bounded import Bounded

LOOKED_AT: Final = 32
"""Nominations that have ended, the last ones; or namespaces, with the last outcome of each."""
ENOUGH: Final = 16
"""So many say something: the first ones of a queue may meet kube-scheduler at its head."""
TOLERATED: Final = 0.25
"""Of these, may have come to nothing."""
FIRST_PAUSE_SECONDS: Final = 60.0
LONGEST_PAUSE_SECONDS: Final = 960.0
_PAUSES: Final = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
NAMESPACES: Final = 1000
"""That are remembered; a forgotten one merely counts anew."""


@dataclass(slots=True)
class _Pause:
    until: float = 0.0
    """Monotonic seconds."""
    _times: int = 0
    """Since all came true last."""

    def is_brought_by(self, came_true: Sequence[bool], now: float) -> bool:
        """Begin a pause where too many were in vain, twice as long each time until all come true."""
        in_vain = came_true.count(False)
        if len(came_true) >= ENOUGH and in_vain > TOLERATED * len(came_true):
            self._times += 1
            self.until = now + _PAUSES.after(self._times)
            return True
        if len(came_true) == LOOKED_AT and not in_vain:
            self._times = 0
        return False


@dataclass(slots=True)
class _OfNamespace:
    pause: _Pause = field(default_factory=_Pause)
    came_true: deque[bool] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))


@dataclass(slots=True)
class NominationBreaker:
    """What came of the nominations of one extender."""

    _pause: _Pause = field(default_factory=_Pause)
    _last: Bounded[str, bool] = field(default_factory=lambda: Bounded(LOOKED_AT))
    """By namespace: whether its last nomination came true."""
    _of: Bounded[str, _OfNamespace] = field(default_factory=lambda: Bounded(NAMESPACES))

    @property
    def paused_until(self) -> float:
        """Until when no namespace is served, in monotonic seconds."""
        return self._pause.until

    def paused_until_in(self, namespace: str) -> float:
        """Until when the pods of a namespace are left to kube-scheduler."""
        record = self._of.get(namespace)
        return record.pause.until if record else 0.0

    def ended(self, namespace: str, now: float, *, came_true: bool) -> None:
        """Take note of the end of a nomination of a pod in this namespace."""
        of_namespace = self._of.get(namespace) or _OfNamespace()
        self._of.put(namespace, of_namespace)
        of_namespace.came_true.append(came_true)
        if of_namespace.pause.is_brought_by(of_namespace.came_true, now):
            of_namespace.came_true.clear()
        self._last.put(namespace, came_true)
        if self._pause.is_brought_by([*self._last.values()], now):
            self._last = Bounded(LOOKED_AT)
