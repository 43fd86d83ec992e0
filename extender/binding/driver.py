"""Runs steps of the protocol: one intent after the other, each answered once, and with `NoAnswer` at the deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from extender.binding.intents import Intent, Reply, Step
from extender.kit.clock import Clock

T = TypeVar("T")

Execute = Callable[[Intent, float], Awaitable[Reply]]
"""Does what an intent says, within so many seconds; never raises."""


@dataclass(frozen=True, slots=True)
class Driver:
    """Does what steps ask for."""

    execute: Execute
    clock: Clock
    work_timeout_seconds: float
    """What one bind, release or repair may take."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return self.clock().monotonic

    def deadline(self) -> float:
        """Return when work has to end that begins now, in monotonic seconds."""
        return self.now() + self.work_timeout_seconds

    async def drive(self, steps: Step[T], deadline: float) -> T:
        """Return what `steps` comes to; `deadline` is in monotonic seconds."""
        try:
            intent = next(steps)
            while True:
                reply = await self.execute(intent, max(0.0, deadline - self.now()))
                intent = steps.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result
