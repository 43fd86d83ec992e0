"""What there was room for: during a day minute by minute, during a week by quarters of an hour; kept in memory only.

`fragmentation` counts it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from extender.inspect.fragmentation import Fits
from extender.inspect.inspection import Answer
from extender.kit.clock import Instant

EVERY_SECONDS: Final = 60.0
KEPT: Final = 24 * 60
"""Counts: those of a day."""
EVERY_SECONDS_OF_WEEK: Final = 15 * EVERY_SECONDS
KEPT_OF_WEEK: Final = 7 * 24 * 4


class Span(StrEnum):
    """For how long there are counts."""

    DAY = "day"
    WEEK = "week"


@dataclass(frozen=True, slots=True)
class _Count:
    at: datetime
    monotonic: float
    fits: Mapping[int, Fits]


class SizeOverTime(Answer):
    """Pods of one size, with NVLink if they have several GPUs: a figure for each time, `None` where no machine was so large."""

    gpus: int
    now: tuple[int | None, ...]
    """Pods that fitted on the GPUs that were free."""
    by_count: tuple[int | None, ...]
    """Pods that would have fitted if the links did not matter."""
    empty: tuple[int | None, ...]
    """Pods that would have fitted if no GPU had been held."""


class RoomOverTime(Answer):
    """The cluster's room by the sizes of pods, oldest time first."""

    times: tuple[datetime, ...]
    sizes: tuple[SizeOverTime, ...]


class RoomHistory:
    """One count a minute for a day, and one a quarter of an hour for a week; those that come sooner are left out."""

    def __init__(self) -> None:
        self._counts = {Span.DAY: deque[_Count](maxlen=KEPT), Span.WEEK: deque[_Count](maxlen=KEPT_OF_WEEK)}

    def add(self, at: Instant, fits: Mapping[int, Fits]) -> None:
        """Keep a count, unless there is one of this minute."""
        for span, every in ((Span.DAY, EVERY_SECONDS), (Span.WEEK, EVERY_SECONDS_OF_WEEK)):
            counts = self._counts[span]
            if not counts or at.monotonic - counts[-1].monotonic >= every:
                counts.append(_Count(datetime.fromtimestamp(int(at.wall), UTC), at.monotonic, fits))

    def over_time(self, span: Span = Span.DAY) -> RoomOverTime:
        """Return all counts of a span, by size; linear in counts and sizes."""
        counts = [count.fits for count in self._counts[span]]
        return RoomOverTime(
            times=tuple(count.at for count in self._counts[span]),
            sizes=tuple(_size(gpus, counts) for gpus in sorted({gpus for fits in counts for gpus in fits})),
        )


def _size(gpus: int, counts: list[Mapping[int, Fits]]) -> SizeOverTime:
    of_size = [fits.get(gpus) for fits in counts]
    return SizeOverTime(
        gpus=gpus,
        now=tuple(fits and fits.now for fits in of_size),
        by_count=tuple(fits and fits.by_count for fits in of_size),
        empty=tuple(fits and fits.empty for fits in of_size),
    )
