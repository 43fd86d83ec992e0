"""Why pods wait: the reasons of their last refusal, and since when they have been refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from extender.kit.fair_table import FairTable
from topology.placement.verdict import Reason

LIMIT = 10_000
"""Pods, shared between namespaces; a forgotten one merely counts anew from its next refusal."""


@dataclass(frozen=True, slots=True)
class FilterRefusal:
    """What filter has said to a pod that no node will do for."""

    since: float
    """Of its first one, in seconds of the monotonic clock."""
    reasons: frozenset[Reason]
    """Of its last one: each that some node gave."""


class Refusals:
    """By pod (UID)."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._refusals = FairTable[str, FilterRefusal](limit)

    def add(self, uid: str, reasons: frozenset[Reason], now: float, namespace: str = "") -> None:
        """Take note that no node will do; `namespace` is the pod's."""
        if before := self._refusals.get(uid):
            self._refusals.replace(uid, replace(before, reasons=reasons))
        else:
            self._refusals.put(uid, namespace, FilterRefusal(now, reasons))

    def of(self, uid: str) -> FilterRefusal | None:
        """Return what has been said to a pod, if it ever was refused."""
        return self._refusals.get(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound, or gone."""
        self._refusals.pop(uid)

    def waits(self, now: float) -> dict[Reason, list[float]]:
        """Return how long the pods have waited that wait by each reason of their last refusal, in seconds."""
        waits: dict[Reason, list[float]] = {}
        for refusal in self._refusals.values():
            for reason in refusal.reasons:
                waits.setdefault(reason, []).append(now - refusal.since)
        return waits

    def waiting(self) -> Counter[Reason]:
        """Count the pods that wait by each reason of their last refusal; a pod counts once for each."""
        return Counter(reason for refusal in self._refusals.values() for reason in refusal.reasons)
