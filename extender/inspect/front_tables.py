"""What features show on the front page, as values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from extender.inspect.sight import Sight


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontRow:
    """A row about one pod."""

    pod: str
    """`namespace/name`."""
    cells: tuple[str, ...]
    """The other columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontTable:
    """A table of one feature."""

    title: str
    columns: tuple[str, ...]
    """Headings, that of the pods first."""
    rows: tuple[FrontRow, ...]
    line: str = ""
    """A sentence about the whole cluster, without names of pods."""

    def seen_by(self, sight: Sight) -> FrontTable:
        """Return it with the rows about pods that the reader may see, and without the names of others."""
        rows = (row for row in self.rows if sight.sees_pod(row.pod))
        return replace(self, rows=tuple(replace(row, cells=sight.texts(row.cells)) for row in rows))
