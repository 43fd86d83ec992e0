"""Pods for which the queue's last plan has found no room, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from extender.kit.fair_table import FairTable
from topology.effort import Search

LIMIT: Final = 10_000
"""Pods, shared between namespaces."""
AT_ONCE: Final = 512
"""Pods, in one step: about a millisecond."""


class WithoutRoom:
    """By pod (UID)."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._since = FairTable[str, float](limit)

    def update(self, pods: Mapping[str, str], now: float) -> Search[None]:
        """Take these for all pods without room.

        Args:
            pods: UID → namespace.
            now: Monotonic seconds. A pod that had no room before has waited for longer.

        """
        for uid in [uid for uid in self._since if uid not in pods]:
            self._since.pop(uid)
        for number, (uid, namespace) in enumerate(pods.items()):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            if uid not in self._since:
                self._since.put(uid, namespace, now)

    def since(self, uid: str) -> float | None:
        """Return since when a pod has had no room, in monotonic seconds; `None`: it has, or nobody plans it here."""
        return self._since.get(uid)

    def in_turn(self, most: int) -> list[str]:
        """Return at most so many pods: the first of each namespace, then the second of each, and so on."""
        return self._since.in_turn(most)
