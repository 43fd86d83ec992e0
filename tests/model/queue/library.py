"""The model of the queue in C; names, fields and bits are those of queue.h, and a test holds both together."""

from __future__ import annotations

from ctypes import Structure, c_uint8, c_uint16, c_uint32
from enum import auto

from tests.model.explorer import HERE, CountedEnum, Explorer

HEADER = HERE / "queue" / "queue.h"
PODS, PLACES, PLANNERS, MOVES = 4, 3, 2, 256
SOURCES = (HERE / "explore.c", *sorted(HERE.glob("queue/*.c")))
NOWHERE, RECONCILER, NOBODY = PLACES, PLANNERS, PLANNERS + 1


class PodPhase(CountedEnum):
    """What is true of a pod."""

    GATED = auto()
    OPEN = auto()
    BOUND = auto()
    DONE = auto()


class Request(CountedEnum):
    """What a planner or the reconciler waits for: `enum step`."""

    IDLE = auto()
    FENCE_UNIT = auto()
    FENCE = auto()
    DROP = auto()
    CLAIM = auto()
    OPEN_GATE = auto()


class QueueMutant(CountedEnum):
    """What the protocol is without."""

    FAITHFUL = auto()
    OPEN_UNCLAIMED = auto()
    OPEN_ONE_BY_ONE = auto()
    OPEN_ANY_VERSION = auto()
    TAKE_BACK_UNFENCED = auto()
    FENCED_ONCE = auto()
    LEDGER_READ_LATE = auto()
    NEVER_TAKEN_BACK = auto()
    CLAIMS_REPLACED = auto()
    PLANNED_AGAIN = auto()
    PINNED_RELEASED = auto()
    RELEASED_UNFENCED = auto()
    RESERVATION_IGNORED = auto()


class QueueEvent(CountedEnum):
    """What leads from one state to the next."""

    TOUCH = auto()
    DELETE = auto()
    END = auto()
    BIND = auto()
    BIND_ELSEWHERE = auto()
    LATE_CLAIM = auto()
    LATE_DROP = auto()
    LATE_OPENING = auto()
    LATE_FENCE = auto()
    HEAR = auto()
    PLAN = auto()
    CARRY_ON = auto()
    KEEP = auto()
    GIVE_UP = auto()
    SEND = auto()
    ANSWER = auto()
    CONFLICT = auto()
    ANSWER_LOST = auto()
    HELD_UP = auto()
    KILLED = auto()


class QueueViolation(CountedEnum):
    """What is wrong with a state."""

    NONE = auto()
    DOUBLE = auto()
    """Two pods have one GPU."""
    UNCLAIMED = auto()
    """A pod runs without a claim."""
    LOST = auto()
    """A pod that may be bound with its planned GPU has no claim on it."""
    HALF = auto()
    """A gang has started, and one of its pods has neither a claim nor a place."""
    ROBBED = auto()
    """A planner has planned a pod on what it keeps for a gang."""
    STUCK = auto()
    """A claim stands that no planner can use or take back."""


class PlannerState(Structure):
    _fields_ = [
        ("step", c_uint32, 3),
        ("pod", c_uint32, 2),
        ("place", c_uint32, 2),
        ("members", c_uint32, 4),
        ("ledgers", c_uint32, 3),
        ("versions", c_uint32, 4),
        ("claimed", c_uint32, 4),
        ("opened", c_uint32, 4),
        ("kept", c_uint32, 3),
        ("taking", c_uint32, 2),
        ("plan", c_uint8 * PODS),
    ]


class ReconcilerState(Structure):
    _fields_ = [
        ("step", c_uint8, 3),
        ("pod", c_uint8, 2),
        ("place", c_uint8, 2),
        ("version_holds", c_uint8, 1),
        ("ledger_holds", c_uint8, 1),
    ]


class QueuedPod(Structure):
    _fields_ = [("phase", c_uint8, 2), ("place", c_uint8, 2), ("record", c_uint8, 1)]


class PlaceLedger(Structure):
    _fields_ = [
        ("owner", c_uint16, 3),
        ("current", c_uint16, 1),
        ("late_claims", c_uint16, 4),
        ("late_outdated", c_uint16, 4),
        ("late_drop", c_uint16, 1),
    ]


class QueueState(Structure):
    _fields_ = [
        ("planners", PlannerState * PLANNERS),
        ("ledgers", PlaceLedger * PLACES),
        ("pods", QueuedPod * PODS),
        ("reconciler", ReconcilerState),
        ("openings", c_uint16, 12),
        ("fences", c_uint16, 4),
        ("robbed", c_uint8),
        ("unused", c_uint8),
    ]


class QueueSetup(Structure):
    _fields_ = [
        ("pods", c_uint8),
        ("places", c_uint8),
        ("planners", c_uint8),
        ("units", c_uint8 * PODS),
        ("pinned", c_uint8),
        ("mutant", c_uint8),
        ("touches", c_uint8),
        ("deletions", c_uint8),
        ("delays", c_uint8),
        ("reservations", c_uint8),
        ("doubles_only", c_uint8),
    ]


class QueueMove(Structure):
    _fields_ = [
        ("after", QueueState),
        ("event", c_uint8),
        ("actor", c_uint8),
        ("pod", c_uint8),
        ("place", c_uint8),
    ]


class QueueMoves(Structure):
    _fields_ = [("count", c_uint32), ("list", QueueMove * MOVES)]


class QueueModel(Explorer[QueueSetup, QueueState, QueueMove]):
    """The compiled model."""

    sources = SOURCES
    options = ('-DMODEL="queue/queue.h"',)
    setup_kind, state_kind, move_kind, moves_kind = QueueSetup, QueueState, QueueMove, QueueMoves
    violation_kind = QueueViolation
