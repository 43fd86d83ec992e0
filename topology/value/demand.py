"""The mix of pods to come, learnt from those that came; old ones fade, and a prior stands in while few have been seen.

Users can make up any number of kinds. So a bounded number is remembered, shared fairly between owners such as namespaces, and a
bounded number is typical. Where there are more, CPU and memory count in a few levels. What is left over counts by its GPUs alone.

A pod that runs long counts for more. The state of a node when the next pod comes is decided by those that hold GPUs then.
How long pods of one size run, against the others, needs no clock. It is how many of them are met running whenever a pod
comes, over how many have ended. Those that have not ended yet count in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from topology.fair_cache import FairCache
from topology.value.fragmentation import PodKind

PRIOR_PODS = 32.0
"""How many pods the prior counts for."""
PRIOR_RUNS = 8.0
"""How many pods of each size the belief counts for that all run equally long."""
REMEMBERED_PODS = 20_000
"""Once so many have been seen, all that was seen counts half."""
REMEMBERED_KINDS = 256
"""A day of Alibaba's cluster has 81."""
TYPICAL_SHARE = 0.95
"""Kinds beyond that many of all pods are left out, the rarest first."""
TYPICAL_KINDS = 64
"""At most so many are typical: what a decision costs grows with them. On Alibaba's cluster 31 are."""
MOST_CPU_MILLI, MOST_GIB = 1 << 20, 1 << 12
"""The highest levels of CPU and memory; no pod that asks for more will fit anywhere."""
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
        self._kinds = FairCache[PodKind, int](REMEMBERED_KINDS, weight=float)
        self._rest: Counter[int] = Counter()
        """Pods of kinds that are not remembered, by GPUs."""
        self._seen = 0
        self._seen_at_mix = 0
        self._running: Counter[int] = Counter()
        """Pods that hold GPUs now, by how many."""
        self._met_running: Counter[int] = Counter()
        """The same, added up over the arrivals."""
        self._ended: Counter[int] = Counter()

    def saw(self, kind: PodKind, owner: str = "") -> None:
        """Take note of a pod that arrives; the place of its kind among those that are remembered is the owner's."""
        is_one_too_many = kind not in self._kinds and self._kinds.is_full_for(owner)
        self._count(in_levels(kind) if is_one_too_many else kind, owner)
        self._seen += 1
        self._met_running.update(self._running)
        if self._seen >= REMEMBERED_PODS:
            self._halve_kinds()
            self._rest = _halved(self._rest)
            self._met_running = _halved(self._met_running)
            self._ended = _halved(self._ended)
            self._seen = sum(self._kinds.values()) + self._rest.total()
            self._seen_at_mix = min(self._seen_at_mix, self._seen)

    def _count(self, kind: PodKind, owner: str) -> None:
        left = self._kinds.put(kind, (self._kinds.get(kind) or 0) + 1, owner)
        if left is None:
            return
        gone, pods = left
        wider = in_levels(gone)
        if wider in self._kinds:
            self._kinds.replace(wider, (self._kinds.get(wider) or 0) + pods)
        else:
            self._rest[gone.gpus] += pods

    def _halve_kinds(self) -> None:
        for kind, pods in [*self._kinds.items()]:
            if pods > 1:
                self._kinds.replace(kind, pods // 2)
            else:
                self._kinds.drop(kind)

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
        for kind, pods in self._kinds.items():
            if kind.gpus:
                counts[kind.gpus] += pods
        for size, pods in self._rest.items():
            if size:
                counts[size] += pods
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
        typical = _most(Counter(dict(self._kinds.items())))
        if len(typical) > TYPICAL_KINDS:
            typical = self._fewer()
        covered = sum(pods for _, pods in typical)
        return [(kind, pods / covered) for kind, pods in typical]

    def _fewer(self) -> list[tuple[PodKind, int]]:
        """Return as many kinds as may be typical: half are the most frequent ones, half each owner's in turn.

        CPU and memory count in levels where an owner has more than its part.
        """
        kinds_of = Counter(self._kinds.owner_of(kind) for kind, _ in self._kinds.items())
        pods_of, owner_of = Counter[PodKind](), dict[PodKind, str]()
        for kind, pods in self._kinds.items():
            owner = self._kinds.owner_of(kind)
            counted_as = in_levels(kind) if kinds_of[owner] > TYPICAL_KINDS // len(kinds_of) else kind
            pods_of[counted_as] += pods
            owner_of.setdefault(counted_as, owner)
        ranks, ranked, kinds = Counter[str](), list[tuple[int, int]](), _by_frequency(pods_of)
        for place, (kind, _) in enumerate(kinds):
            if place < TYPICAL_KINDS // 2:
                ranked.append((0, place))
            else:
                ranks[owner_of[kind]] += 1
                ranked.append((ranks[owner_of[kind]], place))
        return [kinds[place] for place in sorted(place for _, place in sorted(ranked)[:TYPICAL_KINDS])]


def in_levels(kind: PodKind) -> PodKind:
    """Return the kind with its CPU and its memory rounded up to a power of two.

    >>> in_levels(PodKind(1, cpu_milli=5_003, memory_gib=20))
    PodKind(gpus=1, gpu_milli=1000, cpu_milli=8192, models=(), memory_gib=32)
    """
    return replace(
        kind,
        cpu_milli=_level(min(kind.cpu_milli, MOST_CPU_MILLI)),
        memory_gib=_level(min(kind.memory_gib, MOST_GIB)),
    )


def _level(amount: int) -> int:
    return 1 << (amount - 1).bit_length() if amount > 0 else 0


def _most(pods_of: Counter[PodKind]) -> list[tuple[PodKind, int]]:
    """Return the most frequent kinds, up to `TYPICAL_SHARE` of all pods."""
    total, covered = pods_of.total(), 0
    typical: list[tuple[PodKind, int]] = []
    for kind, pods in _by_frequency(pods_of):
        if covered >= TYPICAL_SHARE * total:
            break
        typical.append((kind, pods))
        covered += pods
    return typical


def _by_frequency(pods_of: Counter[PodKind]) -> list[tuple[PodKind, int]]:
    return sorted(pods_of.items(), key=lambda item: (-item[1], repr(item[0])))


def _halved(counts: Counter[int]) -> Counter[int]:
    return +Counter({size: pods // 2 for size, pods in counts.items()})


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
