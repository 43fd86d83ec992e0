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
    last: object = None

    def is_equal() -> bool:
        nonlocal last
        last = read()
        return last == wanted

    try:
        eventually(is_equal, within_seconds)
    except TimedOut:
        raise TimedOut(f"{account(read, last, within_seconds)}\n  wanted: {wanted}") from None


def until_none(remaining: Callable[[], Collection[object]], within_seconds: float = 60.0) -> None:
    """Return when `remaining` gives nothing any more; raises `TimedOut`, whose text says what is still there."""
    left: Collection[object] = ()

    def is_gone() -> bool:
        nonlocal left
        left = remaining()
        return not left

    try:
        eventually(is_gone, within_seconds)
    except TimedOut:
        raise TimedOut(account(remaining, left, within_seconds)) from None
