"""What there was room for, as lines of a drawing with axes, and in words for those who do not see it.

The drawing is 600 wide and 120 high.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from extender.inspect.outlook import written
from extender.inspect.room_over_time import RoomOverTime, SizeOverTime, Span

WIDTH: Final = 600
HEIGHT: Final = 120
POINTS: Final = 240
"""Of a line, about; more nobody could tell apart. The last one is always among them."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The room for pods of one size."""

    gpus: int
    now: int
    by_count: int
    empty: int
    """Those three as they are at the end."""
    fewest: int
    """Pods that fitted at any time."""
    fewest_at: datetime
    """The first time that so few fitted."""
    most: int
    """The upper edge of the drawing."""
    now_line: str
    by_count_line: str

    @property
    def heights(self) -> tuple[int, ...]:
        """What stands at the axis of pods, from the top: whole numbers at equal distances."""
        return (self.most, self.most // 2, 0) if self.most % 2 == 0 else (self.most, 0)

    @property
    def said(self) -> str:
        """The drawing in words."""
        return (
            f"{self.now} pods of {self.gpus} GPUs fit at the end, {self.by_count} would if the links did not matter; "
            f"the fewest that fitted were {self.fewest}, at {written(self.fewest_at)}"
        )


@dataclass(frozen=True, slots=True)
class Ticks:
    """What stands at the axis of time."""

    words: tuple[str, ...]
    """At equal distances, from the first count to the last."""
    lines: tuple[float, ...]
    """Where a line crosses the drawing, between its edges."""


def ticks_of(times: Sequence[datetime], span: Span) -> Ticks:
    """Return five times, in UTC: the hour for a day, the day and the hour for a week.

    >>> ticks_of([datetime(2026, 11, 23, 0), datetime(2026, 11, 24, 0)], Span.DAY).words
    ('00:00', '06:00', '12:00', '18:00', '00:00')
    """
    step = (times[-1] - times[0]) / 4
    form = "%H:%M" if span is Span.DAY else "%a %H:%M"
    return Ticks(
        tuple(f"{times[0] + part * step:{form}}" for part in range(5)), tuple(WIDTH * part / 4 for part in (1, 2, 3))
    )


def curves(room: RoomOverTime) -> Iterator[Curve]:
    """Yield a curve of each size that there is a machine for; of the times before there was one nothing is drawn."""
    return (_curve(room.times, size) for size in room.sizes if size.now[-1] is not None)


def _curve(times: Sequence[datetime], size: SizeOverTime) -> Curve:
    rows = [
        (at, now, by_count, empty)
        for at, now, by_count, empty in zip(times, size.now, size.by_count, size.empty, strict=True)
        if now is not None and by_count is not None and empty is not None
    ]
    fewest_at, fewest, _, _ = min(rows, key=lambda row: row[1])
    most = max(1, *(max(now, count) for _, now, count, _ in rows))
    step = max(1, len(rows) // POINTS)
    drawn = rows[::-step][::-1]
    begin, seconds = times[0], max(1.0, (times[-1] - times[0]).total_seconds())
    across = [WIDTH * (row[0] - begin).total_seconds() / seconds for row in drawn]
    return Curve(
        gpus=size.gpus,
        now=rows[-1][1],
        by_count=rows[-1][2],
        empty=rows[-1][3],
        fewest=fewest,
        fewest_at=fewest_at,
        most=most,
        now_line=_line(across, [row[1] for row in drawn], most),
        by_count_line=_line(across, [row[2] for row in drawn], most),
    )


def _line(across: Sequence[float], pods: Sequence[int], most: int) -> str:
    return " ".join(f"{x:.1f},{HEIGHT * (1 - y / most):.1f}" for x, y in zip(across, pods, strict=True))
