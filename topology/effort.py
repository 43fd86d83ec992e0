"""Limit how much searching is done at once.

A large search goes on a slice at a time, next to callers that wait for no answer.

Effort is counted in steps, about half a microsecond each, and not in time, so that the same questions always come to the same
answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar
from weakref import ref

from topology.bandwidth.rings import Meter

CALL_STEPS = 20_000
"""Of all searches in one call together."""
SEARCH_STEPS = 12_000
"""Of one search in a call, as others want their turn; no machine of the catalogue needs more for any plan."""
SLICE_STEPS = 4_000
"""Of one search between two calls."""

T = TypeVar("T")
Search = Generator[None, None, T]
"""Yields after every small piece of work, and returns what it has found."""


def finish(search: Search[T]) -> T:
    """Run a search to its end."""
    while True:
        try:
            next(search)
        except StopIteration as done:
            found: T = done.value
            return found


def advance(search: Search[object], meter: Meter, steps: int) -> bool:
    """Run a search for about so many steps; returns whether it has come to its end."""
    end = meter.steps + steps
    while meter.steps < end:
        try:
            next(search)
        except StopIteration:
            return True
    return False


class Searcher(Protocol):
    """Has searches that wait."""

    def go_on(self, steps: int) -> bool:
        """Go on with one of them; returns whether any are left."""
        ...


class Allowance:
    """How many steps the searches of one call may still take together."""

    def __init__(self, steps: int = CALL_STEPS) -> None:
        self.steps = steps


class Effort:
    """What the searches of one process may do in a call, and which of them wait; outside `bounded` there is no bound."""

    def __init__(self) -> None:
        self.wake: Callable[[], object] = lambda: None
        """Is called when a search is put off."""
        self._allowance: Allowance | None = None
        self._waiting: deque[ref[Searcher]] = deque()

    @contextmanager
    def bounded(self, steps: int | Allowance = CALL_STEPS) -> Iterator[None]:
        """Let searches take so many steps together; calls in a call share those of the outer one.

        A call that comes in slices brings the `Allowance` of all of them.
        """
        if self._allowance is not None:
            yield
            return
        self._allowance = steps if isinstance(steps, Allowance) else Allowance(steps)
        try:
            yield
        finally:
            self._allowance = None

    def bounded_steps(self, search: Search[T], steps: int = CALL_STEPS) -> Search[T]:
        """Run a search, each step of which may take so many steps of other searches."""
        while True:
            with self.bounded(steps):
                try:
                    next(search)
                except StopIteration as done:
                    found: T = done.value
                    return found
            yield

    @property
    def is_bounded(self) -> bool:
        """Whether somebody waits for an answer now."""
        return self._allowance is not None

    def spend(self, search: Search[object], meter: Meter) -> bool:
        """Run a search as far as may be now; returns whether it has come to its end."""
        if self._allowance is None:
            finish(search)
            return True
        before = meter.steps
        done = advance(search, meter, min(SEARCH_STEPS, self._allowance.steps))
        self._allowance.steps -= meter.steps - before
        return done

    def put_off(self, searcher: Searcher) -> None:
        """Take note that a search of it waits."""
        self._waiting.append(ref(searcher))
        self.wake()

    def work(self) -> Generator[None]:
        """Go on with what waits, a slice for each in turn, until nothing does; yields between the slices."""
        while self._waiting:
            waiting = self._waiting.popleft()
            searcher = waiting()
            if searcher is not None and searcher.go_on(SLICE_STEPS):
                self._waiting.append(waiting)
            del searcher  # nothing that nobody has any more is kept for this
            yield

    def __len__(self) -> int:
        return len(self._waiting)
