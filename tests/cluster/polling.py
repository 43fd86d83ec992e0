"""Waiting for a claim to come true, instead of sleeping and hoping."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from tests.waiting import account, patience

Found = TypeVar("Found")


_SLOWEST_SECONDS = 0.25
_PART_OF_WAIT = 1 / 20


class TimedOut(AssertionError):
    """What was waited for did not come true in time."""


def eventually(claim: Callable[[], Found], within_seconds: float = 60.0, every_seconds: float = 0.05) -> Found:
    """Return the first truthy answer of `claim`, asking again and again.

    It asks less often the longer it has waited, and the longer an answer takes: those waited for need the same cores.

    Raises:
        TimedOut: the time was over first; the text holds the claim and its last answer.

    """
    within_seconds = patience(within_seconds)
    began = asked = time.monotonic()
    while True:
        answer = claim()
        if answer:
            return answer
        now = time.monotonic()
        if now >= began + within_seconds:
            raise TimedOut(account(claim, answer, within_seconds))
        time.sleep(max(every_seconds, min(_SLOWEST_SECONDS, max(now - asked, _PART_OF_WAIT * (now - began)))))
        asked = time.monotonic()


def until_equal(read: Callable[[], object], wanted: object, within_seconds: float = 60.0) -> None:
    """Return when `read` gives what is wanted; raises `TimedOut`, whose text says what it gave last."""
    _until(read, lambda value: value == wanted, within_seconds)


def until_none(remaining: Callable[[], Collection[object]], within_seconds: float = 60.0) -> None:
    """Return when `remaining` gives nothing any more; raises `TimedOut`, whose text says what is still there."""
    _until(remaining, lambda left: not left, within_seconds)


def _until(read: Callable[[], Found], is_right: Callable[[Found], bool], within_seconds: float) -> None:
    """Return when what `read` gives is right; `TimedOut` says what it gave last."""
    last: Found | None = None

    def is_so() -> bool:
        nonlocal last
        last = read()
        return is_right(last)

    try:
        eventually(is_so, within_seconds)
    except TimedOut:
        raise TimedOut(account(read, last, within_seconds)) from None
