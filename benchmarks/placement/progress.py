"""How far many runs are and how long they will still take: one line on a terminal, and nothing in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final, TextIO, TypeVar

T = TypeVar("T")

_BAR: Final = 24
_SECONDS_BETWEEN: Final = 0.1
_ERASE: Final = "\r\x1b[K"


def watched(
    results: Iterable[T], total: int, label: str = "", out: TextIO | None = None, clock: Callable[[], float] = monotonic
) -> Iterator[T]:
    """Pass the results on, and draw how far they are; the line is gone when they are all there."""
    out = out or sys.stderr
    if not out.isatty():
        yield from results
        return
    begin = told = clock()
    out.write(_ERASE + line(label, 0, total, 0.0))
    out.flush()
    try:
        for done, result in enumerate(results, start=1):
            now = clock()
            if now - told >= _SECONDS_BETWEEN:
                told = now
                out.write(_ERASE + line(label, done, total, now - begin))
                out.flush()
            yield result
    finally:
        out.write(_ERASE)
        out.flush()


def line(label: str, done: int, total: int, seconds: float) -> str:
    """Return the line; the time left supposes that the runs to come take as long as those done.

    >>> line("philly", 12, 48, 30.0)
    'philly [######..................] 12/48, 1:30 left'
    """
    full = _BAR * done // total
    left = f", {_minutes(seconds / done * (total - done))} left" if done else ""
    return f"{label} [{'#' * full}{'.' * (_BAR - full)}] {done}/{total}{left}".lstrip()


def _minutes(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"
