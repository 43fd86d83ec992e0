"""An event loop whose time jumps to the next timer whenever nothing is left to do: hours of waiting in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import wraps
from heapq import heappush
from itertools import count
from typing import Any, ParamSpec, TypeVarTuple

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("nothing is ready and nothing is due: a deadlock")
            self.now += max(timeout, 0.0)
        return ready


class _Timer(asyncio.TimerHandle):
    """A timer that knows which came first."""

    __slots__ = ("_order",)
    _scheduled: bool

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
        order: int,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._order = when, order

    def __lt__(self, other: object) -> bool:
        return self._order < other._order if isinstance(other, _Timer) else NotImplemented


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()`, `sleep` and `timeout` live on a clock of their own."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self._given = count()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at a time; those of the same time run in the order in which they were given.

        asyncio leaves that order to its heap, which depends on when the garbage collector cancels other timers.
        """
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context, next(self._given))
        heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass as it does while something is worked out."""
        self._jumping.now += seconds


def in_virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test on a `VirtualTimeLoop`."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(main())

    return run
