"""Runs steps of the protocol: one intent after the other, each answered once, and with `NoAnswer` at the deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from extender.binding.intents import Intent, Reply, Step
from extender.clock import Clock

T = TypeVar("T")

Execute = Callable[[Intent, float], Awaitable[Reply]]
"""Does what an intent says, within so many seconds; never raises."""


async def drive(steps: Step[T], execute: Execute, clock: Clock, deadline: float) -> T:
    """Return what `steps` comes to; `deadline` is in monotonic seconds."""
    try:
        intent = next(steps)
        while True:
            reply = await execute(intent, max(0.0, deadline - clock().monotonic))
            intent = steps.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result
