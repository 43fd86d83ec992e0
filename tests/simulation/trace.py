"""What happened in one run: lines to read, counters to sum up, violations. Equal runs have equal digests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

from tests.world.faults import AnyFault


class Trace:
    """The record of one run; `clock` is the virtual time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.lines: list[str] = []
        self.counters: Counter[str] = Counter()
        self.violations: list[str] = []

    def note(self, who: str, what: str) -> None:
        """Write one line."""
        self.lines.append(f"{self._clock():9.3f}  {who:<12} {what}")

    def count(self, what: str) -> None:
        """Count one occurrence."""
        self.counters[what] += 1

    def fault(self, fault: AnyFault, who: str, what: str = "") -> None:
        """Count a fault and write it down."""
        self.counters[f"fault: {fault}"] += 1
        self.note(who, f"! {fault} {what}".rstrip())

    def violation(self, law: str, what: str) -> None:
        """Record that a law was broken."""
        self.violations.append(f"{law}: {what}")
        self.note("VIOLATION", f"{law}: {what}")

    @property
    def digest(self) -> str:
        """Name the run by all that happened in it."""
        text = "\n".join([*self.lines, *(f"{key}={self.counters[key]}" for key in sorted(self.counters))])
        return hashlib.sha256(text.encode()).hexdigest()
