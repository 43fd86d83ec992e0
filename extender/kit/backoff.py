"""Exponential backoff: after a failure there is a pause, and each further failure doubles it. Knows no clock.

`Pauses` is the arithmetic, for a caller that counts its failures itself. `Backoff` counts them by key.
The lengths are constants of the code that retries. Fixed pauses, such as `RETRY_SECONDS`, do not come from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Final

from extender.kit.fair_table import FairTable

LIMIT: Final = 10_000
"""Keys that are remembered at most, shared fairly between namespaces; an attempt with a forgotten key may begin at once."""
_MAX_DOUBLINGS: Final = 30
"""Far more than lie between any two limits. Powers without a bound would not fit into a float after a day of failures."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to pause after a number of failures in a row."""

    first_seconds: float
    longest_seconds: float
    tolerated: int = 0
    """Failures in a row that bring no pause yet."""
    random: Callable[[], float] | None = None
    """Gives numbers in 0..1. With it a pause lasts between half its length and all of it: clients do not retry in step."""

    def after(self, failures: int) -> float:
        """Return the pause in seconds."""
        doublings = failures - self.tolerated - 1
        if doublings < 0:
            return 0.0
        seconds = min(self.first_seconds * 2.0 ** min(doublings, _MAX_DOUBLINGS), self.longest_seconds)
        return seconds if self.random is None else seconds * (0.5 + 0.5 * self.random())


@dataclass(frozen=True, slots=True)
class _Record:
    failures: int = 0
    """In a row."""
    not_before: float = 0.0
    """When the next attempt may begin, in monotonic seconds."""


_NONE: Final = _Record()


@dataclass(slots=True)
class Backoff:
    """The failures of each key, such as a pod's UID, and its earliest next attempt. A restart forgets them."""

    pauses: Pauses
    limit: int = LIMIT
    _records: FairTable[str, _Record] = field(init=False)

    def __post_init__(self) -> None:
        self._records = FairTable(self.limit)

    def may_begin(self, key: str, now: float) -> bool:
        """Whether the pause after the last failure is over."""
        return self.not_before(key) <= now

    def not_before(self, key: str) -> float:
        """Return when the next attempt may begin, in monotonic seconds: 0 without a failure, infinity after `give_up`."""
        return (self._records.get(key) or _NONE).not_before

    def failures(self, key: str) -> int:
        """Return how many attempts in a row have failed."""
        return (self._records.get(key) or _NONE).failures

    def failed(self, key: str, now: float, namespace: str = "") -> float:
        """Record a failure and return the pause in seconds; `namespace` is the tenant whose share of the table it takes."""
        failures = self.failures(key) + 1
        pause = self.pauses.after(failures)
        self._records.put(key, namespace, _Record(failures, now + pause))
        return pause

    def give_up(self, key: str, namespace: str = "") -> None:
        """Let no further attempt begin, until the key is forgotten."""
        self._records.put(key, namespace, _Record(self.failures(key), math.inf))

    def forget(self, key: str) -> None:
        """Forget the failures of a key: its attempt succeeded, or is not needed any more."""
        self._records.pop(key)

    def keep_only(self, *keys: Container[str]) -> None:
        """Forget the keys that are in none of these."""
        for key in [key for key in self._records if not any(key in some for some in keys)]:
            self._records.pop(key)

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._records)
