"""The time of faults, and its end: whether something goes wrong now, for everybody in a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

from tests.simulation.mix import Mix
from tests.world.faults import AnyFault

_OVERTIME_SECONDS = 5.0

F = TypeVar("F", bound=AnyFault)


class Storm:
    """Storm, then calm."""

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self._over = asyncio.Event()
        self._at_last: list[Callable[[], None]] = []

    @property
    def is_over(self) -> bool:
        """Whether no more faults begin."""
        return self._over.is_set()

    def end(self) -> None:
        """End all faults."""
        self._over.set()
        for then in self._at_last:
            then()

    def at_the_end(self, then: Callable[[], None]) -> None:
        """Call `then` when all faults end."""
        self._at_last.append(then)

    def strikes(self, fault: AnyFault, random: Random) -> bool:
        """Whether the fault happens now."""
        return random.random() < self.mix.rates.get(fault, 0.0) and not self.is_over

    def hold(self, fault: AnyFault, random: Random) -> float:
        """Return for how long the fault holds a message now; not much beyond the storm."""
        if not self.strikes(fault, random):
            return 0.0
        left = self.mix.storm_seconds - asyncio.get_running_loop().time()
        return min(random.uniform(0.5, self.mix.longest_hold_seconds), left + _OVERTIME_SECONDS)

    def choose(self, faults: Iterable[F], random: Random) -> F | None:
        """Return at most one of several faults with these probabilities."""
        value = random.random()
        for fault in faults:
            value -= self.mix.rates.get(fault, 0.0)
            if value < 0:
                return None if self.is_over else fault
        return None

    async def sleep(self, seconds: float) -> None:
        """Wait so long, or until it is over."""
        if seconds <= 0 or self.is_over:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
