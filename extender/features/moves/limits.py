"""How often pods may move: of one owner, of and for one namespace, and in all. No I/O.

What is counted is bounded by the limit of all moves. A record of it outlives this process (`record.py`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Self

from extender.cluster.objects.gpu_pods import GpuPod, successors_of
from extender.cluster.objects.group_words import restart_group_of
from extender.cluster.objects.kinds import Pod
from extender.features.moves.settings import MOST_PER_HOUR, MovesSettings
from extender.kit.bounded import Bounded
from extender.kit.clock import Instant
from extender.kit.fair_table import FairTable

HOUR_SECONDS: Final = 3600.0
OWNERS: Final = 10_000
"""That are remembered; a namespace with many owners forgets its own ones."""


@dataclass(frozen=True, slots=True)
class RecordedMove:
    """An eviction that makes room, or that is about to."""

    uid: str
    """Of the pod that moves."""
    owner: str
    """As `owner_key` names it."""
    namespace: str
    for_namespace: str
    at: float
    """Monotonic seconds."""

    @classmethod
    def of(cls, pod: Pod, for_namespace: str, at: float) -> Self:
        """Return the move of a pod."""
        return cls(pod.metadata.uid, owner_key(pod), pod.metadata.namespace, for_namespace, at)


def owner_key(pod: Pod) -> str:
    """Return a short name of a pod's owner: tenants choose how long the UID in a reference is."""
    return sha256(successors_of(pod).encode()).hexdigest()[:16]


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
            frozenset(owner_key(pod) for pod, _ in pods),
        )


NOTHING_UNDER_WAY: Final = UnderWay()


@dataclass(slots=True)
class MoveLimits:
    """The moves of the last hour; all times are monotonic seconds."""

    settings: MovesSettings
    _moves: OrderedDict[str, RecordedMove] = field(default_factory=OrderedDict)
    """By UID, the oldest first: those of the last hour."""
    _of: Counter[str] = field(default_factory=Counter)
    """Namespace → its pods that have moved in the last hour."""
    _for: Counter[str] = field(default_factory=Counter)
    """Namespace → the pods that have moved for its pods in the last hour."""
    _owners: FairTable[str, RecordedMove] = field(default_factory=lambda: FairTable(OWNERS))
    """Owner → the last move of a pod of it."""
    _void: Bounded[str, None] = field(default_factory=lambda: Bounded(MOST_PER_HOUR))
    """UIDs of pods that stayed although the record may say that they moved."""

    def may_ask(self, namespace: str, now: float) -> bool:
        """Whether a pod may move for one of this namespace."""
        self._forget(now)
        return len(self._moves) < self.settings.per_hour and self._for[namespace] < self.settings.namespace_per_hour

    def may_move(self, pod: GpuPod, now: Instant, under_way: UnderWay = NOTHING_UNDER_WAY) -> bool:
        """Whether a pod may move: it is old enough, no pod of its owner moves or just moved, nor too many of its namespace."""
        self._forget(now.monotonic)
        between, owner = self.settings.between_moves, owner_key(pod.pod)
        last = self._owners.get(owner)
        age_seconds = now.age_seconds(pod.pod.status.start_time or pod.pod.metadata.creation_timestamp)
        is_rested = last is None or now.monotonic - last.at >= between
        is_alone = not between or owner not in under_way.owners
        moved = self._of[pod.key[0]] + under_way.of.get(pod.key[0], 0)
        return is_rested and is_alone and age_seconds >= between and moved < self.settings.namespace_per_hour

    def may_move_together(
        self, pods: Sequence[Pod], namespace: str, now: float, under_way: UnderWay = NOTHING_UNDER_WAY
    ) -> bool:
        """Whether these pods, each of which may move, may do so at one time for a pod of this namespace.

        Of one owner at most one, unless they restart together.
        """
        self._forget(now)
        most, of = self.settings.namespace_per_hour, Counter(pod.metadata.namespace for pod in pods)
        alone = [pod for pod in pods if not restart_group_of(pod)]
        return (
            len(self._moves) + under_way.count + len(pods) <= self.settings.per_hour
            and self._for[namespace] + under_way.by_receiver.get(namespace, 0) + len(pods) <= most
            and all(self._of[name] + under_way.of.get(name, 0) + count <= most for name, count in of.items())
            and (len({owner_key(pod) for pod in alone}) == len(alone) or not self.settings.between_moves)
        )

    def moved_lately(self, now: float, for_namespace: str | None = None) -> int:
        """Return how many pods have moved in the last hour, in all or for those of one namespace."""
        self._forget(now)
        return len(self._moves) if for_namespace is None else self._for[for_namespace]

    def moved(self, move: RecordedMove) -> None:
        """Take note of a move, the newest one; what was noted of the same pod counts no longer."""
        self.stayed(move.uid)
        self._void.pop(move.uid)
        self._add(move)

    def stayed(self, uid: str) -> None:
        """Take note that a pod has not moved, whatever has been noted."""
        move = self._moves.pop(uid, None)
        if move is None:
            return
        self._void.put(uid, None)
        self._count(move, -1)
        last = self._owners.get(move.owner)
        if last == move:
            self._owners.pop(move.owner)
            for earlier in self._moves.values():
                if earlier.owner == move.owner:
                    self._owners.put(move.owner, move.namespace, earlier)

    def learn(self, moves: Iterable[RecordedMove], now: float) -> None:
        """Take note of recorded moves, of this process and of others; the later moment of two counts."""
        newer = {move.uid: move for move in moves if move.uid not in self._void}
        for uid, move in self._moves.items():
            if uid not in newer or newer[uid].at < move.at:
                newer[uid] = move
        self._moves.clear()
        self._of.clear()
        self._for.clear()
        for move in sorted(newer.values(), key=lambda move: move.at):
            self._add(move)
        self._forget(now)

    def to_record(self, now: float) -> list[RecordedMove]:
        """Return the moves that still count, of an owner or at all, the oldest first; at most as many as an hour may have."""
        self._forget(now)
        resting = (move for move in self._owners.values() if now - move.at < self.settings.between_moves)
        moves = {move.uid: move for move in resting} | self._moves
        return sorted(moves.values(), key=lambda move: move.at)[-MOST_PER_HOUR:]

    def recorded(self) -> None:
        """Take note that the record says what `to_record` has returned."""
        self._void = Bounded(MOST_PER_HOUR)

    def _add(self, move: RecordedMove) -> None:
        self._moves[move.uid] = move
        self._count(move, 1)
        last = self._owners.get(move.owner)
        if last is None or last.at <= move.at:
            self._owners.put(move.owner, move.namespace, move)

    def _count(self, move: RecordedMove, difference: int) -> None:
        for counts, namespace in ((self._of, move.namespace), (self._for, move.for_namespace)):
            counts[namespace] += difference
            if not counts[namespace]:
                del counts[namespace]

    def _forget(self, now: float) -> None:
        while self._moves and now - (move := next(iter(self._moves.values()))).at >= HOUR_SECONDS:
            del self._moves[move.uid]
            self._count(move, -1)
