"""Waiting for a claim to come true, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.waiting import account

Found = TypeVar("Found")


class TimedOut(AssertionError):
    """What was waited for did not come true in time."""


def eventually(claim: Callable[[], Found], within_seconds: float = 60.0, every_seconds: float = 0.05) -> Found:
    """Return the first truthy answer of `claim`, asking again and again.

    Raises:
        TimedOut: the time was over first; the text holds the claim and its last answer.

    """
    deadline = time.monotonic() + within_seconds
    while True:
        answer = claim()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise TimedOut(account(claim, answer, within_seconds))
        time.sleep(every_seconds)
