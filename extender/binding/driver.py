"""Runs steps of the protocol: one intent after the other, each answered once, and with `NoAnswer` at the deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from extender.binding.intents import FencePod, Intent, NoAnswer, Reply, Step
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
    before_fence: list[Callable[[str], Step[bool]]] = field(default_factory=list)
    """Makes sure of more than that no Binding commits, by the pod's UID. If it fails, the pod is not fenced.

    Claims of a pod that is not bound leave a ledger only after a fence. So nothing that rests on them is under way then.
    """

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
                intent = steps.send(await self._do(intent, deadline))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _do(self, intent: Intent, deadline: float) -> Reply:
        if isinstance(intent, FencePod):
            for prepare in self.before_fence:
                if not await self.drive(prepare(intent.uid), deadline):
                    return NoAnswer("what rests on its claims cannot be taken back yet")
        return await self.execute(intent, max(0.0, deadline - self.now()))
