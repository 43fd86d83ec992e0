"""How often pods may move: of one owner, of and for one namespace, and in all. No I/O.

What is counted is bounded by the limit of all moves. A restart forgets it; the least age of a pod that moves does not.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from extender.cluster.objects.gpu_pods import GpuPod, owner_of
from extender.cluster.objects.kinds import Pod
from extender.features.moves.settings import MovesSettings
from extender.kit.clock import Instant
from extender.kit.fair_table import FairTable

HOUR_SECONDS: Final = 3600.0
OWNERS: Final = 10_000
"""That are remembered; a namespace with many owners forgets its own ones."""


@dataclass(frozen=True, slots=True)
class _Move:
    at: float
    """Monotonic seconds."""
    namespace: str
    """Of the pod that moved."""
    for_namespace: str


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Pods of plans that are carried out, and that are yet to move: they count as if they had moved."""

    count: int = 0
    of: Mapping[str, int] = field(default_factory=Counter)
    """By namespace."""
    by_receiver: Mapping[str, int] = field(default_factory=Counter)
    """By the namespace of the pod that they move for."""
    owners: frozenset[str] = frozenset()

    @classmethod
    def adding(cls, moves: Iterable[tuple[Pod, str]]) -> Self:
        """Add up pods, each with the namespace that it moves for."""
        pods = [*moves]
        return cls(
            len(pods),
            Counter(pod.metadata.namespace for pod, _ in pods),
            Counter(namespace for _, namespace in pods),
            frozenset(owner_of(pod) for pod, _ in pods),
        )


NOTHING_UNDER_WAY: Final = UnderWay()


@dataclass(slots=True)
class MoveLimits:
    """The moves of the last hour; all times are monotonic seconds."""

    settings: MovesSettings
    _moves: deque[_Move] = field(default_factory=deque)
    _of: Counter[str] = field(default_factory=Counter)
    """Namespace → its pods that have moved in the last hour."""
    _for: Counter[str] = field(default_factory=Counter)
    """Namespace → the pods that have moved for its pods in the last hour."""
    _owners: FairTable[str, float] = field(default_factory=lambda: FairTable(OWNERS))
    """Owner → when a pod of it moved last."""

    def may_ask(self, namespace: str, now: float) -> bool:
        """Whether a pod may move for one of this namespace."""
        self._forget(now)
        return len(self._moves) < self.settings.per_hour and self._for[namespace] < self.settings.namespace_per_hour

    def may_move(self, pod: GpuPod, now: Instant, under_way: UnderWay = NOTHING_UNDER_WAY) -> bool:
        """Whether a pod may move: it is old enough, no pod of its owner moves or just moved, nor too many of its namespace."""
        self._forget(now.monotonic)
        between, moved_at = self.settings.between_moves, self._owners.get(owner_of(pod.pod))
        age_seconds = now.age_seconds(pod.pod.status.start_time or pod.pod.metadata.creation_timestamp)
        is_rested = moved_at is None or now.monotonic - moved_at >= between
        is_alone = not between or owner_of(pod.pod) not in under_way.owners
        moved = self._of[pod.key[0]] + under_way.of.get(pod.key[0], 0)
        return is_rested and is_alone and age_seconds >= between and moved < self.settings.namespace_per_hour

    def may_move_together(
        self, pods: Sequence[Pod], namespace: str, now: float, under_way: UnderWay = NOTHING_UNDER_WAY
    ) -> bool:
        """Whether these pods, each of which may move, may do so at one time for a pod of this namespace."""
        self._forget(now)
        most, of = self.settings.namespace_per_hour, Counter(pod.metadata.namespace for pod in pods)
        owners = {owner_of(pod) for pod in pods}
        return (
            len(self._moves) + under_way.count + len(pods) <= self.settings.per_hour
            and self._for[namespace] + under_way.by_receiver.get(namespace, 0) + len(pods) <= most
            and all(self._of[name] + under_way.of.get(name, 0) + count <= most for name, count in of.items())
            and (len(owners) == len(pods) or not self.settings.between_moves)
        )

    def moved_lately(self, now: float, for_namespace: str | None = None) -> int:
        """Return how many pods have moved in the last hour, in all or for those of one namespace."""
        self._forget(now)
        return len(self._moves) if for_namespace is None else self._for[for_namespace]

    def moved(self, pod: Pod, for_namespace: str, now: float) -> None:
        """Take note that a pod has been evicted."""
        namespace = pod.metadata.namespace
        self._moves.append(_Move(now, namespace, for_namespace))
        self._of[namespace] += 1
        self._for[for_namespace] += 1
        self._owners.put(owner_of(pod), namespace, now)

    def _forget(self, now: float) -> None:
        while self._moves and now - self._moves[0].at >= HOUR_SECONDS:
            move = self._moves.popleft()
            for counts, namespace in ((self._of, move.namespace), (self._for, move.for_namespace)):
                counts[namespace] -= 1
                if not counts[namespace]:
                    del counts[namespace]
