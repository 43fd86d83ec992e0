"""Pods for which the queue's last plan has found no room, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
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
        self._limit = limit
        self._since = FairTable[str, float](limit)

    def update(self, pods: Iterable[tuple[str, str]], now: float) -> Search[None]:
        """Take these for all pods without room; of more than the limit, the first of each namespace.

        Args:
            pods: UIDs with their namespaces, in the order in which the pods are served.
            now: Monotonic seconds. A pod that had no room before has waited for longer.

        """
        lines = dict[str, list[str]]()
        for number, (uid, namespace) in enumerate(pods):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            lines.setdefault(namespace, []).append(uid)
        first = _first_of_each(lines, self._limit)
        gone = [uid for uid in self._since if uid not in first]
        yield
        for number, uid in enumerate(gone):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            self._since.pop(uid)
        for number, (uid, namespace) in enumerate(first.items()):
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

    def to_back(self, uid: str) -> None:
        """Let others come first; the pod has waited since when it did."""
        self._since.to_back(uid)


def _first_of_each(lines: Mapping[str, list[str]], limit: int) -> dict[str, str]:
    """Return UID → namespace of at most so many pods: each namespace gets an equal share, and what others leave of theirs."""
    share, left = 0, limit
    for smaller, length in enumerate(sorted(map(len, lines.values()))):
        share, rest = divmod(left, len(lines) - smaller)
        if length > share:
            left = rest
            break
        left -= length
    first = {uid: namespace for namespace, line in lines.items() for uid in line[:share]}
    next_ones = ((line[share], namespace) for namespace, line in lines.items() if len(line) > share)
    return first | dict(islice(next_ones, left))
