"""The rows of a list of all nodes or pods, each made by itself: one that cannot be made must not hide all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from extender.kit.plain_structlog import structlog

Row = TypeVar("Row")

log = structlog.get_logger(__name__)


def row(subject: str, make: Callable[[], Row], instead: Row) -> Row:
    """Return what `make` returns, or `instead` where it raises, which is a fault of ours and goes to the log."""
    try:
        return make()
    except Exception:
        log.exception("a row cannot be made", subject=subject)
        return instead


def rows(subject: str, make: Callable[[], Iterable[Row]], instead: Sequence[Row] = ()) -> Sequence[Row]:
    """Do the same where any number of rows are made of one node or pod."""
    return row(subject, lambda: tuple(make()), instead)
