"""Runs steps of the protocol: one intent after the other, each answered once, and with `NoAnswer` at the deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from extender.binding.intents import Conflict, Done, FencePod, Gone, Intent, NoAnswer, Reply, Step
from extender.cluster.objects.kinds import Pod
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
    after_fence: list[Callable[[Pod], Step[bool]]] = field(default_factory=list)
    """Takes back what rests on claims in the version that a pod has just left. If that fails, the fence has no answer.

    Claims of a pod that is not bound leave a ledger only after a fence. So nothing that rests on them is under way then. The
    fence comes first: whoever has seen the pod in its version since would begin again otherwise.
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
        reply = await self.execute(intent, max(0.0, deadline - self.now()))
        if isinstance(intent, FencePod) and isinstance(reply, Done | Conflict | Gone):
            for take_back in self.after_fence:
                if not await self.drive(take_back(intent.known), deadline):
                    return NoAnswer("what rests on its claims cannot be taken back yet")
        return reply
