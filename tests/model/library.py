"""The claim protocol's model in C.

Enumerations and structures are those of model.h, name for name and bit for bit; `test_library` holds both together.
"""

from __future__ import annotations

from ctypes import Structure, byref, c_uint8, c_uint16, c_uint32
from enum import auto

from tests.model.explorer import HERE, CountedEnum, Explorer

GPUS, PODS, ACTORS, MOVES = 2, 3, 4, 512
NOBODY = ACTORS
"""The actor of moves that nobody in particular makes."""
SOURCES = sorted(HERE.glob("*.c"))


class Phase(CountedEnum):
    """What is true of a pod."""

    UNBORN = auto()
    PENDING = auto()
    LEAVING = auto()
    ENDED = auto()
    RUNNING = auto()
    STOPPING = auto()
    DOUBTED = auto()
    STOPPED = auto()
    GONE = auto()
    GHOST = auto()
    DEAD = auto()
    REPORTED = auto()


class Place(CountedEnum):
    """Where a pod is bound, as seen from the node of a claim."""

    UNBOUND = auto()
    HERE = auto()
    ELSEWHERE = auto()


class Violation(CountedEnum):
    """What is wrong with a state."""

    NONE = auto()
    DOUBLE = auto()
    MIXED = auto()
    MET = auto()
    OVERFULL = auto()
    SPREAD = auto()
    UNCLAIMED = auto()
    STUCK = auto()
    EXCESS = auto()


class Waits(CountedEnum):
    """What an actor waits for: `enum step`."""

    IDLE = auto()
    LOOK = auto()
    SEEN = auto()
    FENCE = auto()
    SWAP = auto()
    BIND = auto()
    CHECK = auto()
    FENCE_REFUSED = auto()
    WITHDRAW = auto()
    LIST_UNBOUND = auto()
    REBUILD = auto()
    STOCK = auto()
    DROP = auto()


class Mutant(CountedEnum):
    """What the protocol is without."""

    FAITHFUL = auto()
    NO_LEDGER = auto()
    NO_CAS = auto()
    NO_FENCE = auto()
    UID_ONLY = auto()
    NO_PRECONDITIONS = auto()
    RECHOICE_WITHOUT_FENCE = auto()
    RESEND_WITHOUT_CLAIM = auto()
    LEDGER_READ_AFTER_FENCE = auto()
    WITHDRAWAL_IN_DOUBT = auto()
    MISSING_IS_EMPTY = auto()
    REBUILD_WITHOUT_FENCE = auto()
    UNBOUND_BY_HEARSAY = auto()
    STOCK_BY_HEARSAY = auto()
    SUM_IGNORED = auto()
    SHARED_TAKEN_WHOLE = auto()
    CLASS_IGNORED = auto()
    BOUND_IGNORED = auto()
    OLDER_KEPT = auto()
    OLDER_DROPPED_WITHOUT_FENCE = auto()
    OLDER_READ_AFTER_FENCE = auto()


class Event(CountedEnum):
    """What leads from one state to the next."""

    CREATE = auto()
    TOUCH = auto()
    DELETE = auto()
    END = auto()
    DOUBT = auto()
    FORCE_DELETE = auto()
    STOP = auto()
    REPORT = auto()
    RENEW_NODE = auto()
    WIPE = auto()
    LATE_SWAP = auto()
    LATE_BINDING = auto()
    LATE_FENCE = auto()
    BEGIN = auto()
    ANSWER = auto()
    CONFLICT = auto()
    REFUSAL = auto()
    LOST = auto()
    ANSWER_LOST = auto()
    DUPLICATED = auto()
    HELD_UP = auto()
    KILLED = auto()
    KILLED_HELD_UP = auto()


class Actor(Structure):
    _fields_ = [
        ("step", c_uint32, 4),
        ("pod", c_uint32, 2),
        ("node", c_uint32, 1),
        ("gpus", c_uint32, 2),
        ("former", c_uint32, 1),
        ("version_holds", c_uint32, 1),
        ("ledger_holds", c_uint32, 1),
        ("owners", c_uint32, 6),
        ("doubt", c_uint32, 1),
        ("unanswered", c_uint32, 1),
        ("older", c_uint32, 1),
        ("other_holds", c_uint32, 1),
    ]


class PodTruth(Structure):
    _fields_ = [("phase", c_uint8, 4), ("gpus", c_uint8, 2), ("former", c_uint8, 1)]


class State(Structure):
    _fields_ = [
        ("actors", Actor * ACTORS),
        ("pods", PodTruth * PODS),
        ("owners", c_uint8, 6),
        ("missing", c_uint8, 2),
        ("ledgers", c_uint16),
        ("bindings", c_uint16, 9),
        ("former_bindings", c_uint16, 3),
        ("fences", c_uint16, 3),
    ]


class Setup(Structure):
    _fields_ = [
        ("pods", c_uint8),
        ("nodes", c_uint8),
        ("gpus", c_uint8),
        ("binders", c_uint8),
        ("reconcilers", c_uint8),
        ("wanted", c_uint8 * PODS),
        ("units", c_uint8),
        ("shares", c_uint8 * PODS),
        ("classes", c_uint8 * PODS),
        ("shareable", c_uint8),
        ("mutant", c_uint8),
        ("delays", c_uint8),
        ("late_bindings", c_uint8),
        ("touches", c_uint8),
        ("finalizers", c_uint8),
        ("ends", c_uint8),
        ("graceful", c_uint8),
        ("doubts", c_uint8),
        ("force", c_uint8),
        ("refusals", c_uint8),
        ("unfit", c_uint8),
        ("namesakes", c_uint8),
        ("renewals", c_uint8),
        ("wipes", c_uint8),
        ("doubles_only", c_uint8),
        ("standings", c_uint8 * len(Place) * len(Phase)),
    ]


class Move(Structure):
    _fields_ = [("after", State), ("event", c_uint8), ("actor", c_uint8), ("pod", c_uint8), ("gpus", c_uint8)]


class Moves(Structure):
    _fields_ = [("count", c_uint32), ("list", Move * MOVES)]


class Model(Explorer[Setup, State, Move]):
    """The compiled model."""

    sources, options = SOURCES, ()
    setup_kind, state_kind, move_kind, moves_kind = Setup, State, Move, Moves
    violation_kind = Violation

    def swapped(self, setup: Setup, owners: int, pod: int, begun: int, ended: int, dropped: int) -> int:
        """Return the ledger that a swap writes; see `swapped` in requests.c."""
        result: int = self.library.swapped(byref(setup), owners, pod, begun, ended, dropped)
        return result

    def ledger_bit(self, setup: Setup, owners: int) -> int:
        """Return the bit of `State.ledgers` for a swap to this ledger of the first node."""
        bit: int = self.library.ledger_bit(byref(setup), 0, owners)
        return bit
