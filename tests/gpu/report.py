"""What a run on a machine with GPUs has found, as a page to commit to `tests/gpu/reports/`.

A check gives rows. One that compares nothing is skipped, and never passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import pytest

_SHOWN = 4
"""Of so many GPUs or pairs the names are listed; of more the first and how many."""


class Result(StrEnum):
    """What became of one question."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NEITHER = "neither says"
    TOLD = "told"
    """There is nothing to compare it with."""
    SKIPPED = "skipped"
    FAILED = "failed"


_WRONG = {Result.DIFFERS, Result.FAILED}
_ANSWERED = {Result.EQUAL, Result.TOLD}


@dataclass(frozen=True, slots=True)
class Row:
    """One question about one thing."""

    what: str
    of: str
    """`GPU0`, `GPU0 to GPU1` or `node`."""
    result: Result
    ours: str = ""
    expected: str = ""
    why: str = ""


def compared(what: str, of: str, ours: str | None, expected: str | None, *, names_it: bool = False) -> Row:
    """Compare two answers, `None` for none; what names a machine is shown only where it differs."""
    if ours is None and expected is None:
        return Row(what, of, Result.NEITHER)
    if ours == expected:
        shown = "not shown" if names_it else str(ours)
        return Row(what, of, Result.EQUAL, shown, shown)
    return Row(what, of, Result.DIFFERS, ours or "says nothing", expected or "says nothing")


def told(what: str, of: str, value: str) -> Row:
    """Write down what nothing is compared with."""
    return Row(what, of, Result.TOLD, value)


def skipped(what: str, of: str, why: str) -> Row:
    """Write down that it was not tried, and why."""
    return Row(what, of, Result.SKIPPED, why=why)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran; nothing of it names this one machine among its like."""

    gpus: str
    driver: str
    facts: tuple[tuple[str, str], ...]
    is_played: bool
    """By the fake NVML of tests/nvml."""


@dataclass(slots=True)
class Report:
    """All checks of one run."""

    machine: Machine
    date: str
    file: Path
    """Where it is written to."""
    checks: dict[str, list[Row]] = field(default_factory=dict)

    def check(self, title: str, rows: Callable[[], Iterable[Row]]) -> None:
        """Run a check, keep its rows, and fail or skip the test as they say."""
        found = self.checks.setdefault(title, [])
        try:
            found.extend(rows())
        except Exception as error:
            found.append(Row("the check", "node", Result.FAILED, why=f"{type(error).__name__}: {error}"))
            raise
        wrong = [row for row in found if row.result in _WRONG]
        assert not wrong, "\n".join(f"{row.of}, {row.what}: {row.ours}, expected {row.expected}" for row in wrong)
        if not any(row.result in _ANSWERED for row in found):
            pytest.skip("; ".join(dict.fromkeys(row.why or row.result for row in found)) or "nothing to compare")

    def to_markdown(self) -> str:
        """Return the page."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        machine = self.machine
        yield f"# {machine.gpus}, driver {machine.driver}"
        yield ""
        if machine.is_played:
            yield "**Simulated by the fake NVML of `tests/nvml`. This page says nothing about any GPU.**"
            yield ""
        results = Counter(row.result for rows in self.checks.values() for row in rows)
        yield f"`make test-gpu` on {self.date}: " + ", ".join(f"{results[each]} {each}" for each in Result) + "."
        yield ""
        yield from _table(("machine", "is"), [("GPUs", machine.gpus), ("driver", machine.driver), *machine.facts])
        for title, rows in self.checks.items():
            yield ""
            yield f"## {title}"
            yield ""
            yield from _table(("what", "of", "result", "gputopo", "expected", "why"), _merged(rows))


def _merged(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """Put what is the same of several GPUs into one line."""
    same: dict[Row, list[str]] = {}
    for row in rows:
        same.setdefault(replace(row, of=""), []).append(row.of)
    for row, names in same.items():
        of = ", ".join(names) if len(names) <= _SHOWN else f"{names[0]} … {names[-1]} ({len(names)})"
        yield row.what, of, row.result, row.ours, row.expected, row.why


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
