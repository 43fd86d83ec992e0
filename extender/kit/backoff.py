"""Exponential backoff by key: after an attempt that failed there is a pause, each twice as long as the last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Attempt:
    """How often it was in vain, and when the next one may begin."""

    in_vain: int = 0
    not_before: float = 0.0
    """Monotonic, in seconds."""


@dataclass(slots=True)
class Backoff:
    """By what is tried, such as a pod's UID; kept in memory, so that a restart forgets the pauses."""

    pause_seconds: float
    longest_pause_seconds: float
    _of: dict[str, Attempt] = field(default_factory=dict)

    def may_begin(self, key: str, now: float) -> bool:
        """Whether the pause after the last one is over."""
        return self._of.get(key, Attempt()).not_before <= now

    def was_in_vain(self, key: str, now: float) -> float:
        """Take note that one brought nothing; returns the pause in seconds."""
        in_vain = self._of.get(key, Attempt()).in_vain + 1
        pause = min(self.pause_seconds * 2.0 ** min(in_vain - 1, 30), self.longest_pause_seconds)
        self._of[key] = Attempt(in_vain, now + pause)
        return pause

    def forget(self, key: str) -> None:
        """Forget one that is over, or will not be made again."""
        self._of.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all others: they wait no more."""
        self._of = {key: attempt for key, attempt in self._of.items() if key in keys}
