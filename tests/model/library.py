"""The explorer in C: compiled where it is used, called through ctypes.

Enumerations and structures are those of model.h, name for name and bit for bit; `test_library` holds both together.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from ctypes import CDLL, Structure, byref, c_uint8, c_uint16, c_uint32, c_uint64
from dataclasses import dataclass
from enum import IntEnum, auto
from pathlib import Path

HERE = Path(__file__).parent
GPUS, PODS, ACTORS, MOVES = 2, 3, 4, 512
NOBODY = ACTORS
"""The actor of moves that nobody in particular makes."""
TRACE_STATES = 64


class _Counted(IntEnum):
    """Numbers its members from zero, as C does."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class Phase(_Counted):
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


class Place(_Counted):
    """Where a pod is bound, as seen from the node of a claim."""

    UNBOUND = auto()
    HERE = auto()
    ELSEWHERE = auto()


class Violation(_Counted):
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


class Waits(_Counted):
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


class Mutant(_Counted):
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


class Event(_Counted):
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


class _Moves(Structure):
    _fields_ = [("count", c_uint32), ("list", Move * MOVES)]


class _Outcome(Structure):
    _fields_ = [
        ("states", c_uint64),
        ("visited", c_uint64),
        ("depth", c_uint32),
        ("violation", c_uint32),
        ("full", c_uint32),
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """What an exploration came to."""

    states: int
    """All that can be reached, or that were met before the violation."""
    visited: int
    """One of those that differ only in which of two like actors is which."""
    depth: int
    """Moves to the farthest state, or to the violation."""
    violation: Violation
    trace: tuple[tuple[State, Move], ...]
    """The shortest way to the violation: each state with the move that was made in it."""


class TooManyStates(Exception):
    """There were more states than may be kept, so nothing is proven."""


class Model:
    """The compiled model; `folder` is where the library goes."""

    def __init__(self, folder: Path) -> None:
        self._library = _compile(folder / "model.so")
        self._library.first_state.restype = State

    def first_state(self, setup: Setup) -> State:
        """Return the state that everything starts from."""
        state: State = self._library.first_state(byref(setup))
        return state

    def moves(self, setup: Setup, state: State, actor: int | None = None) -> Iterator[Move]:
        """Yield all moves that can follow, or those of one actor."""
        moves = _Moves()
        self._library.all_moves(byref(setup), byref(state), byref(moves))
        made = (moves.list[number] for number in range(moves.count))
        return made if actor is None else (move for move in made if move.actor == actor)

    def explore(self, setup: Setup, capacity: int) -> Found:
        """Visit every state, nearest first, up to the first violation; raises `TooManyStates` beyond `capacity` states."""
        outcome, trace = _Outcome(), (State * TRACE_STATES)()
        self._library.explore(byref(setup), c_uint64(capacity), byref(outcome), trace, c_uint32(TRACE_STATES))
        if outcome.full:
            raise TooManyStates(f"more than {capacity} states")
        violation = Violation(outcome.violation)
        steps = tuple(self._retrace(setup, trace[1 : outcome.depth + 1])) if violation else ()
        return Found(outcome.states, outcome.visited, outcome.depth, violation, steps)

    def swapped(self, setup: Setup, owners: int, pod: int, begun: int, ended: int, dropped: int) -> int:
        """Return the ledger that a swap writes; see `swapped` in requests.c."""
        result: int = self._library.swapped(byref(setup), owners, pod, begun, ended, dropped)
        return result

    def ledger_bit(self, setup: Setup, owners: int) -> int:
        """Return the bit of `State.ledgers` for a swap to this ledger of the first node."""
        bit: int = self._library.ledger_bit(byref(setup), 0, owners)
        return bit

    def sizes(self) -> dict[type[Structure], int]:
        """Return the size of each structure as the library has it."""
        kinds: tuple[type[Structure], ...] = (State, Setup, Move, _Moves, _Outcome)
        sizes = (c_uint32 * len(kinds)).in_dll(self._library, "LAYOUT")
        return dict(zip(kinds, sizes, strict=True))

    def _retrace(self, setup: Setup, canonical: list[State]) -> Iterator[tuple[State, Move]]:
        """Yield moves of actors that keep their names along a way on which the explorer has put them in order."""
        state = self.first_state(setup)
        for wanted in canonical:
            move = next(
                move for move in self.moves(setup, state) if self._canonical(setup, move.after) == bytes(wanted)
            )
            yield state, move
            state = move.after

    def _canonical(self, setup: Setup, state: State) -> bytes:
        copy = State.from_buffer_copy(state)
        self._library.make_canonical(byref(setup), byref(copy))
        return bytes(copy)


def has_compiler() -> bool:
    """Whether the library can be built here."""
    return shutil.which("gcc") is not None


def _compile(target: Path) -> CDLL:
    sources = sorted(str(source) for source in HERE.glob("*.c"))
    options = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, *sources, "-o", str(target)], check=True)
    return CDLL(str(target))
