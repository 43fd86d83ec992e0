"""Progress: a line with the time left on a terminal, and not a byte anywhere else."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from benchmarks.placement.progress import line, watched


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        """Return that a person looks on."""
        return True


def test_a_terminal_is_told_how_far_and_how_long_and_is_left_clean() -> None:
    """Two of four runs took 30 s each, so the other two will take a minute."""
    out, times = Terminal(), iter([0.0, 30.0, 60.0, 90.0, 120.0])
    assert list(watched("abcd", 4, "philly", out, lambda: next(times))) == list("abcd")
    shown = out.getvalue().split("\r\x1b[K")
    assert shown[1] == "philly [........................] 0/4"
    assert shown[3] == "philly [############............] 2/4, 1:00 left"
    assert shown[-1] == ""


def test_a_pipe_is_told_nothing() -> None:
    """Logs of a run hold its answer alone."""
    out = io.StringIO()
    assert list(watched("abcd", 4, "philly", out)) == list("abcd")
    assert out.getvalue() == ""


def test_the_line_goes_when_a_run_fails() -> None:
    """The reason stands on a line of its own."""

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError

    out = Terminal()
    with pytest.raises(ValueError, match=r"^$"):
        list(watched(failing(), 2, "", out))
    assert out.getvalue().endswith("\r\x1b[K")


def test_the_line_is_ascii_and_fits_a_terminal() -> None:
    """Also after a day, of many runs."""
    found = line("mixed-fleet", 1, 100_000, 1.0)
    assert found.isascii()
    assert len(found) < 80
