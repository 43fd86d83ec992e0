"""What there is to show of the queue: its units in order, and a sentence about one of its pods. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.state import ClusterState
from extender.features.queue.waiting import NotPlanned, WaitReason, key_of_unit
from extender.inspect.inspection import Answer
from extender.inspect.notes import PodNote
from extender.kit.clock import Instant
from extender.planning.reservations import Reservation
from topology.annotations import keys

ROWS: Final = 1000
"""Units that are listed."""
PLANNED: Final = "planned"
NOT_YET: Final = "not-yet"
STANDING_BY: Final = "standing-by"
WITHOUT_QUEUE: Final = "the extender runs without `queue.enabled`"
NO_PLANNER: Final = "no-planner"
"""Reasons that are no `WaitReason`: what no plan says of a pod."""
_IN_LINE: Final = frozenset({PLANNED, WaitReason.NO_ROOM, WaitReason.RESERVED, WaitReason.NOT_REACHED})
"""Pods with these reasons have a place in the order."""
_IN_VAIN: Final = frozenset({NO_PLANNER, WaitReason.UNREADABLE, WaitReason.CONSTRAINTS, WaitReason.NO_SIZE})
"""Pods with these reasons wait until somebody changes something."""


class QueueRow(Answer):
    """A gang or a pod that waits."""

    place: int | None
    """In the order in which units are served, from 1; `None`: it has none yet."""
    kind: str
    """`gang` or `pod`."""
    namespace: str
    name: str
    pods: int
    """Those of its pods that wait for this reason."""
    gpus: int
    """All that they request; a share of a GPU counts as one."""
    priority: int
    since: datetime | None
    """When the first of them was created."""
    seconds: float
    """How long that is ago."""
    reason: str
    message: str
    is_reserved_for: bool = False
    """Whether GPUs are kept for it."""
    expected_start: datetime | None = None
    """When all of these will be free, as far as pods say how long they run."""


class QueueReport(Answer):
    """The pods behind the scheduling gate `gputopo.dev/plan`, in the order in which they are served."""

    is_served: bool | None
    """Whether this extender or another replica of it plans the queue; `None`: no extender was asked."""
    rows: tuple[QueueRow, ...]
    """At most 1,000."""
    pods_left_out: int = 0
    """Pods that are in no row."""


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """Why one pod waits."""

    pod: GpuPod
    why: str
    words: str

    @classmethod
    def planned(cls, pod: GpuPod, node: str) -> QueueStanding:
        """Return that of a pod whose gate is about to be opened."""
        return cls(pod, PLANNED, f"it is planned on {node}")

    @classmethod
    def not_planned(cls, pod: GpuPod, reason: NotPlanned) -> QueueStanding:
        """Return that of a pod without a plan."""
        return cls(pod, reason.why, reason.words)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is equal of pods that share a row."""

    key: str
    kind: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class _ListedUnit:
    """Pods of one gang that wait for one reason, or one pod."""

    place: int | None
    unit: _Unit
    standings: tuple[QueueStanding, ...]


def report(
    state: ClusterState,
    standings: Sequence[QueueStanding],
    now: Instant,
    *,
    is_served: bool | None,
    reservation: Reservation | None = None,
) -> QueueReport:
    """Return the rows of these pods, which are in their order."""
    units = [_ListedUnit(place, unit, (*of_unit,)) for place, unit, of_unit in islice(_units(state, standings), ROWS)]
    return QueueReport(
        is_served=is_served,
        rows=tuple(_row(unit, now, reservation) for unit in units),
        pods_left_out=len(standings) - sum(len(unit.standings) for unit in units),
    )


def with_places(state: ClusterState, standings: Iterable[QueueStanding]) -> Iterator[tuple[QueueStanding, int | None]]:
    """Yield these pods, which are in their order, with the places of their units; no further than they are taken."""
    return ((standing, place) for place, _, members in _units(state, standings) for standing in members)


def note(state: ClusterState, standings: Sequence[QueueStanding], uid: str) -> PodNote | None:
    """Return a sentence about one of these pods, `None` where it is none of them."""
    of_pod = (_note(*placed) for placed in with_places(state, standings) if placed[0].pod.uid == uid)
    return next(of_pod, None)


def queued(state: ClusterState) -> list[GpuPod]:
    """Return the pods behind our gate, the oldest first."""
    pods = state.indexes.gates.queued.values()
    return sorted(pods, key=lambda pod: (pod.pod.metadata.creation_timestamp or "", pod.key))


def without_planner(pods: Iterable[GpuPod]) -> list[QueueStanding]:
    """Return what there is to say of pods where nobody plans."""
    words = f"nobody serves its scheduling gate {keys.PLAN_GATE}: {WITHOUT_QUEUE}"
    return [QueueStanding(pod, NO_PLANNER, words) for pod in pods]


def by_another(pods: Iterable[GpuPod]) -> list[QueueStanding]:
    """Return what there is to say of pods that another replica plans."""
    words = "another replica of the extender plans the queue: ask that one, or none for an estimate"
    return [QueueStanding(pod, STANDING_BY, words) for pod in pods]


def not_yet(pods: Iterable[GpuPod]) -> list[QueueStanding]:
    """Return what there is to say of pods that no plan has reached."""
    return [QueueStanding(pod, NOT_YET, "no plan has reached it yet") for pod in pods]


def _units(
    state: ClusterState, standings: Iterable[QueueStanding]
) -> Iterator[tuple[int | None, _Unit, Iterator[QueueStanding]]]:
    """Yield units with their places, and their pods, which are next to each other."""
    places = 0
    for unit, members in groupby(standings, partial(_unit_of, state)):
        is_in_line = unit.why in _IN_LINE
        places += is_in_line
        yield places if is_in_line else None, unit, members


def _unit_of(state: ClusterState, standing: QueueStanding) -> _Unit:
    pod = standing.pod
    group = state.indexes.groups.request_of(pod.uid)
    kind, name = ("gang", group.name) if group and group.is_gang else ("pod", pod.key[1])
    return _Unit(key_of_unit(pod, group), kind, name, standing.why)


def _row(listed: _ListedUnit, now: Instant, reservation: Reservation | None) -> QueueRow:
    pods, unit = [standing.pod for standing in listed.standings], listed.unit
    created = min((since for pod in pods if (since := pod.pod.metadata.creation_timestamp)), default=None)
    seconds = now.age_seconds(created)
    is_owner = reservation is not None and reservation.owner == unit.key
    ready_at = reservation.ready_at if reservation and is_owner else None
    return QueueRow(
        place=listed.place,
        kind=unit.kind,
        namespace=pods[0].key[0],
        name=unit.name,
        pods=len(pods),
        gpus=sum(pod.gpus or len(pod.shares) for pod in pods),
        priority=min(priority_of(pod.pod) for pod in pods),
        since=_moment(now.wall - seconds) if created else None,
        seconds=seconds,
        reason=unit.why,
        message=listed.standings[0].words,
        is_reserved_for=is_owner,
        expected_start=None if ready_at is None else _moment(now.wall + max(0.0, ready_at - now.monotonic)),
    )


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(int(wall), UTC)


def _note(standing: QueueStanding, place: int | None) -> PodNote:
    where = f", place {place}" if place else ""
    return PodNote(
        feature="queue", line=f"in gputopo's queue{where}: {standing.words}", is_problem=standing.why in _IN_VAIN
    )
