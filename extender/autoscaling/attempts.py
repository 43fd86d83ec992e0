"""When a pod may get its next placeholder: after one that brought nothing there is a pause, each longer than the last."""

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
class Attempts:
    """By the UID of the pod that waits; kept in memory, so that a restart forgets the pauses."""

    pause_seconds: float
    longest_pause_seconds: float
    _of: dict[str, Attempt] = field(default_factory=dict)

    def may_begin(self, uid: str, now: float) -> bool:
        """Whether the pause after the last one is over."""
        return self._of.get(uid, Attempt()).not_before <= now

    def was_in_vain(self, uid: str, now: float) -> float:
        """Take note that no node came for the pod; returns the pause in seconds."""
        in_vain = self._of.get(uid, Attempt()).in_vain + 1
        pause = min(self.pause_seconds * 2.0 ** min(in_vain - 1, 30), self.longest_pause_seconds)
        self._of[uid] = Attempt(in_vain, now + pause)
        return pause

    def keep(self, uids: Collection[str]) -> None:
        """Forget all others: they wait no more."""
        self._of = {uid: attempt for uid, attempt in self._of.items() if uid in uids}
