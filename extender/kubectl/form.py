"""How the plugin prints: tables as kubectl's, documents or names; what others wrote is shown without control characters."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from textwrap import wrap
from typing import Final, TextIO

from extender.inspect.inspection import Answer
from extender.kit.logs import printable
from extender.kit.yaml_text import write_yaml

MAX_LINE_CHARACTERS: Final = 4096
COLUMNS: Final = 100
"""Of a table with long texts."""
NARROWEST: Final = 16
"""Columns are not made narrower than that."""
_GAP: Final = "   "


def say(line: str = "", *, end: str = "\n", to: TextIO | None = None) -> None:
    """Print one line, to standard output where nothing else is said, with no character that acts on a terminal."""
    print(printable(line, MAX_LINE_CHARACTERS), end=end, file=to)


class Output(StrEnum):
    """How to print."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Form:
    """How the answer is wanted."""

    output: Output = Output.TABLE
    headers: bool = True

    @property
    def is_wide(self) -> bool:
        """Whether the columns are wanted that most people do not need."""
        return self.output is Output.WIDE

    @property
    def is_document(self) -> bool:
        """Whether one document is wanted, for a program."""
        return self.output in (Output.JSON, Output.YAML)

    def document(self, answer: Answer, names: Iterable[str]) -> bool:
        """Print an answer as a document or as names; returns whether that was wanted."""
        if self.output is Output.JSON:
            print(_escaped(answer.model_dump_json(indent=2)))
        elif self.output is Output.YAML:
            print(write_yaml(answer.model_dump(mode="json")), end="")
        elif self.output is Output.NAME:
            for name in names:
                say(name)
        else:
            return False
        return True

    def table(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[str]],
        wide: int = 0,
        *,
        empty: str = "",
        folds: bool = False,
    ) -> None:
        """Print columns as kubectl does: left aligned, three spaces between them, `<none>` for nothing.

        Args:
            heads: The heads of the columns.
            rows: The cells.
            wide: How many of the last columns `-o wide` alone shows.
            empty: What to print instead of a table without rows.
            folds: Whether a table that is too wide breaks its longest cells into lines. `-o wide` never does, nor do tables
                without heads, which are for programs.

        """
        shown = len(heads) if self.is_wide else len(heads) - wide
        lines = [[printable(cell) or "<none>" for cell in row[:shown]] for row in rows]
        if not lines:
            if empty:
                say(empty)
            return
        lines = [[*heads[:shown]], *lines] if self.headers else lines
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if folds and self.headers and not self.is_wide:
            widths = _fitting(widths)
        for line in lines:
            folded = [
                [cell] if len(cell) <= width else wrap(cell, width, break_on_hyphens=False)
                for cell, width in zip(line, widths, strict=True)
            ]
            for parts in zip_longest(*folded, fillvalue=""):
                cells = [cell.ljust(width) for cell, width in zip(parts, widths, strict=True)]
                print(_GAP.join(map(_coloured, heads, cells)).rstrip())


def _fitting(widths: list[int]) -> list[int]:
    """Return the widths with which a table has `COLUMNS`, or is as narrow as it can be: the widest column gives way."""
    widths = [*widths]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > COLUMNS and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _escaped(document: str) -> str:
    """Return a JSON document that says the same without a character that acts on a terminal; its lines stay."""
    return "\n".join(
        line if line.isprintable() else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
        for line in document.split("\n")
    )


_RED, _GREEN, _YELLOW = 31, 32, 33
_COLOURS: Final = {
    "STATE": {"free": _GREEN, "held": _YELLOW, "unplanned": _YELLOW, "unusable": _RED, "conflict": _RED},
    "FITS": {"yes": _GREEN, "no": _RED},
}
"""Heads of columns → words that stand out there, as ANSI numbers them."""


def _coloured(head: str, cell: str) -> str:
    """Colour a cell, for people at a terminal who want colours (https://no-color.org)."""
    colour = _COLOURS.get(head, {}).get(cell.strip())
    if colour is None or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return cell
    return f"\x1b[{colour}m{cell}\x1b[0m"
