"""The explorer in C: compiled with a model where it is used, called through ctypes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from ctypes import CDLL, Structure, byref, c_uint32, c_uint64
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Generic, TypeVar

HERE = Path(__file__).parent
TRACE_STATES = 64
SetupT = TypeVar("SetupT", bound=Structure)
StateT = TypeVar("StateT", bound=Structure)
MoveT = TypeVar("MoveT", bound=Structure)


class CountedEnum(IntEnum):
    """Numbers its members from zero, as C does."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class _Outcome(Structure):
    _fields_ = [
        ("states", c_uint64),
        ("visited", c_uint64),
        ("depth", c_uint32),
        ("violation", c_uint32),
        ("full", c_uint32),
    ]


@dataclass(frozen=True, slots=True)
class Found(Generic[StateT, MoveT]):
    """What an exploration came to."""

    states: int
    """All that can be reached, or that were met before the violation."""
    visited: int
    """One of those that differ only in which of two like actors is which."""
    depth: int
    """Moves to the farthest state, or to the violation."""
    violation: IntEnum
    trace: tuple[tuple[StateT, MoveT], ...]
    """The shortest way to the violation: each state with the move that was made in it."""


class TooManyStates(Exception):
    """There were more states than may be kept, so nothing is proven."""


class Explorer(Generic[SetupT, StateT, MoveT]):
    """A compiled model; `folder` is where the library goes."""

    sources: Sequence[Path]
    options: Sequence[str]
    setup_kind: type[SetupT]
    state_kind: type[StateT]
    move_kind: type[MoveT]
    moves_kind: type[Structure]
    violation_kind: type[IntEnum]

    def __init__(self, folder: Path) -> None:
        self.library = _compile(folder / "model.so", self.sources, self.options)
        self.library.first_state.restype = self.state_kind

    def first_state(self, setup: SetupT) -> StateT:
        """Return the state that everything starts from."""
        state: StateT = self.library.first_state(byref(setup))
        return state

    def moves(self, setup: SetupT, state: StateT, actor: int | None = None) -> Iterator[MoveT]:
        """Yield all moves that can follow, or those of one actor."""
        moves = self.moves_kind()
        self.library.all_moves(byref(setup), byref(state), byref(moves))
        made = (moves.list[number] for number in range(moves.count))
        return made if actor is None else (move for move in made if move.actor == actor)

    def explore(self, setup: SetupT, capacity: int) -> Found[StateT, MoveT]:
        """Visit every state, nearest first, up to the first violation; raises `TooManyStates` beyond `capacity` states."""
        outcome, trace = _Outcome(), (self.state_kind * TRACE_STATES)()
        self.library.explore(byref(setup), c_uint64(capacity), byref(outcome), trace, c_uint32(TRACE_STATES))
        if outcome.full:
            raise TooManyStates(f"more than {capacity} states")
        violation = self.violation_kind(outcome.violation)
        steps = tuple(self._retrace(setup, trace[1 : outcome.depth + 1])) if violation else ()
        return Found(outcome.states, outcome.visited, outcome.depth, violation, steps)

    def sizes(self) -> dict[type[Structure], int]:
        """Return the size of each structure as the library has it."""
        kinds = (self.state_kind, self.setup_kind, self.move_kind, self.moves_kind, _Outcome)
        sizes = (c_uint32 * len(kinds)).in_dll(self.library, "LAYOUT")
        return dict(zip(kinds, sizes, strict=True))

    def _retrace(self, setup: SetupT, canonical: Sequence[StateT]) -> Iterator[tuple[StateT, MoveT]]:
        """Yield moves of actors that keep their names along a way on which the explorer has put them in order."""
        state = self.first_state(setup)
        for wanted in canonical:
            move = next(
                move for move in self.moves(setup, state) if self._canonical(setup, move.after) == bytes(wanted)
            )
            yield state, move
            state = move.after

    def _canonical(self, setup: SetupT, state: StateT) -> bytes:
        copy = self.state_kind.from_buffer_copy(state)
        self.library.make_canonical(byref(setup), byref(copy))
        return bytes(copy)


def has_compiler() -> bool:
    """Whether a model can be built here."""
    return shutil.which("gcc") is not None


def _compile(target: Path, sources: Sequence[Path], options: Sequence[str]) -> CDLL:
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, *options, *map(str, sources), "-o", str(target)], check=True)
    return CDLL(str(target))
