"""The mix of pods to come, learnt from those that came; old ones fade, and a prior stands in while few have been seen.

A pod that runs long counts for more: what a machine looks like when the next pod comes is decided by those that hold GPUs then.
How long pods of one size run, against the others, is taken from how many of them are met running whenever a pod comes, over how
many have ended: no clock is asked, and those that have not ended yet count in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

from topology.value.fragmentation import PodKind

T = TypeVar("T", bound=Hashable)

PRIOR_PODS = 32.0
"""How many pods the prior counts for."""
PRIOR_RUNS = 8.0
"""How many pods of each size the belief counts for that all run equally long."""
REMEMBERED_PODS = 20_000
"""Once so many have been seen, all that was seen counts half."""
TYPICAL_SHARE = 0.95
"""Kinds beyond that many of all pods are left out, the rarest first."""
RENEWAL = 1.5
"""The mix is worth working out anew when so many times as many pods have been seen as at the last time."""
DRIFT = 0.02
"""Values are computed anew when pods of another size ask for so much of the GPUs."""


class Demand:
    """Counts pods by kind."""

    def __init__(self, prior: Sequence[tuple[int, float]]) -> None:
        """Start from shares of pods by GPUs asked for."""
        total = sum(share for _, share in prior)
        self._prior = {size: share / total for size, share in prior}
        self._kinds: Counter[PodKind] = Counter()
        self._seen = 0
        self._seen_at_mix = 0
        self._running: Counter[int] = Counter()
        """Pods that hold GPUs now, by how many."""
        self._met_running: Counter[int] = Counter()
        """The same, added up over the arrivals."""
        self._ended: Counter[int] = Counter()

    def saw(self, kind: PodKind) -> None:
        """Take note of a pod that arrives."""
        self._kinds[kind] += 1
        self._seen += 1
        self._met_running.update(self._running)
        if self._seen >= REMEMBERED_PODS:
            self._kinds = _halved(self._kinds)
            self._met_running = _halved(self._met_running)
            self._ended = _halved(self._ended)
            self._seen = self._kinds.total()
            self._seen_at_mix = min(self._seen_at_mix, self._seen)

    def started(self, kind: PodKind) -> None:
        """Take note of a pod that has its GPUs from now on."""
        self._running[kind.gpus] += 1

    def ended(self, kind: PodKind) -> None:
        """Take note of a pod that had its GPUs and gives them back."""
        self._running[kind.gpus] -= 1
        if not self._running[kind.gpus]:
            del self._running[kind.gpus]
        self._ended[kind.gpus] += 1

    def is_news(self) -> bool:
        """Whether much has been seen since the last `mix`."""
        return self._seen > RENEWAL * max(self._seen_at_mix, PRIOR_PODS)

    def mix(self) -> tuple[tuple[tuple[int, float], ...], list[tuple[PodKind, float]]]:
        """Return the shares of pods by GPUs asked for, and the typical kinds with theirs; both add up to 1."""
        self._seen_at_mix = self._seen
        return self._sizes(), self._typical()

    def _sizes(self) -> tuple[tuple[int, float], ...]:
        counts = Counter({size: PRIOR_PODS * share for size, share in self._prior.items()})
        for kind, count in self._kinds.items():
            if kind.gpus:
                counts[kind.gpus] += count
        weights = {size: count * self._run(size) for size, count in sorted(counts.items()) if count > 0}
        total = sum(weights.values())
        return tuple((size, weight / total) for size, weight in weights.items())

    def _run(self, size: int) -> float:
        """Return how long pods of this size run, against the mean of all; 1 while nobody knows."""
        met, ended = self._met_running.total(), self._ended.total()
        if not met or not ended:
            return 1.0
        return (self._met_running[size] * ended / met + PRIOR_RUNS) / (self._ended[size] + PRIOR_RUNS)

    def _typical(self) -> list[tuple[PodKind, float]]:
        total, covered = self._kinds.total(), 0
        typical: list[tuple[PodKind, int]] = []
        for kind, count in sorted(self._kinds.items(), key=lambda item: (-item[1], repr(item[0]))):
            if covered >= TYPICAL_SHARE * total:
                break
            typical.append((kind, count))
            covered += count
        return [(kind, count / covered) for kind, count in typical]


def _halved(counts: Counter[T]) -> Counter[T]:
    return +Counter({each: count // 2 for each, count in counts.items()})


def drift(before: Sequence[tuple[int, float]], now: Sequence[tuple[int, float]]) -> float:
    """Return how much of the GPUs asked for is asked for by pods of another size than before, 0..1.

    >>> drift([(1, 0.8), (4, 0.2)], [(1, 1.0)])
    0.5
    """
    old, new = _of_gpus(before), _of_gpus(now)
    return sum(abs(old.get(size, 0.0) - new.get(size, 0.0)) for size in old.keys() | new.keys()) / 2


def _of_gpus(sizes: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Turn shares of pods into shares of the GPUs that they ask for."""
    total = sum(size * share for size, share in sizes)
    return {size: size * share / total for size, share in sizes}
