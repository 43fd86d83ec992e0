"""Work that is done again and again, with one policy for failures.

A round that raises is logged, counted, and tried again with exponential backoff. A vital round ends its process instead. A round
with a `stale_after_seconds` makes the process not ready when it has not succeeded for that long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from extender.kit.backoff import Backoff, Pauses
from extender.kit.plain_structlog import structlog

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One kind of work."""

    name: str
    work: Callable[[], Awaitable[object]]
    """May also run for ever: then it is begun again when it fails."""
    every_seconds: float | Callable[[], float] = 0.0
    """Pause after a round that succeeded; a function where it varies."""
    wake: asyncio.Event | None = None
    """Ends the pause early, and is cleared then."""
    first_after_seconds: float = 0.0
    is_vital: bool = False
    """Nothing may go on where this has failed."""
    stale_after_seconds: float | None = None
    at_once: bool = False
    """Begin before the cluster has been listed."""


class Rounds:
    """All rounds of one process."""

    def __init__(
        self, failed: Callable[[str], object] = lambda _: None, begun: Callable[[str], object] = lambda _: None
    ) -> None:
        """Call `begun` with the name of each round that is started, and `failed` whenever it raises."""
        self._failed = failed
        self._begun = begun
        self._pauses = Backoff(Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stale_after: dict[str, float] = {}
        self._succeeded_at: dict[str, float] = {}

    def start(self, rounds: Iterable[Round], listed: Callable[[], Awaitable[object]]) -> None:
        """Run each round as a task; `listed` waits until the cluster has been listed."""
        now = asyncio.get_running_loop().time()
        for round_ in rounds:
            if round_.stale_after_seconds is not None:
                self._stale_after[round_.name], self._succeeded_at[round_.name] = round_.stale_after_seconds, now
            self._tasks[round_.name] = asyncio.create_task(self._run(round_, listed), name=round_.name)
            self._begun(round_.name)

    async def failure(self) -> None:
        """Wait until a vital round fails, and raise the reason."""
        await asyncio.gather(*self._tasks.values())

    async def stop(self) -> None:
        """End all of them."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def life(self) -> dict[str, str | None]:
        """Return each round, and why it ended; only a restart begins it again."""
        return {name: _cause_of_end(task) for name, task in self._tasks.items()}

    def stale(self) -> dict[str, str | None]:
        """Return each round that has to succeed, and for how long it has not where that is too long."""
        now = asyncio.get_running_loop().time()
        ages = {name: now - self._succeeded_at[name] for name in self._stale_after}
        return {
            name: f"failed for {age:.0f} s" if age > self._stale_after[name] else None for name, age in ages.items()
        }

    async def _run(self, round_: Round, listed: Callable[[], Awaitable[object]]) -> NoReturn:
        if not round_.at_once:
            await listed()
        await asyncio.sleep(round_.first_after_seconds)
        while True:
            await _pause(await self._try(round_), round_.wake)

    async def _try(self, round_: Round) -> float:
        """Do one round; returns the pause after it in seconds."""
        clock = asyncio.get_running_loop()
        try:
            await round_.work()
        except Exception:
            if round_.is_vital:
                raise
            pause = self._pauses.failed(round_.name, clock.time())
            log.exception("a round failed", round=round_.name, pause=pause)
            self._failed(round_.name)
            return pause
        self._pauses.forget(round_.name)
        if round_.name in self._succeeded_at:
            self._succeeded_at[round_.name] = clock.time()
        return round_.every_seconds() if callable(round_.every_seconds) else round_.every_seconds


async def _pause(seconds: float, wake: asyncio.Event | None) -> None:
    if wake is None:
        await asyncio.sleep(seconds)
        return
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return
    wake.clear()


def _cause_of_end(task: asyncio.Task[None]) -> str | None:
    if not task.done():
        return None
    return "cancelled" if task.cancelled() else repr(task.exception())
