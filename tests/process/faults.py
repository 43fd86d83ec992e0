"""What can become of one request on its way to the API server and back, whichever server it is.

The words and what they mean are those of `tests.world.http_faults`; here a `Proxy` brings them about, and only here
a test may hold a request and let it go, or do something in the middle of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from tests.process.calls import Call
from tests.process.proxy import Fault, Forward, Reply
from tests.world.http_faults import FATES, Ending, RequestFault, refusal_body


def of(what: RequestFault, *, retry_after_seconds: int | None = None) -> Fault:
    """Suffer the fate of a fault; one that is only `SLOW` is `delayed`, or `Held`."""
    assert what is not RequestFault.SLOW
    fate = FATES[what]
    refusal = None if fate.refusal is None else refused(fate.refusal, retry_after_seconds)

    async def fault(_: Call, forward: Forward) -> Reply | None:
        answer = None
        for _arrival in range(fate.arrivals):
            answer = await forward()
        if fate.ending is Ending.SILENT:
            await asyncio.Event().wait()
        return (refusal or answer) if fate.ending is Ending.TOLD else None

    return fault


def refused(status: int, retry_after_seconds: int | None = None) -> Reply:
    """Return the answer of a server that refuses out of nowhere."""
    pause = {} if retry_after_seconds is None else {"Retry-After": str(retry_after_seconds)}
    return Reply(status, {"Content-Type": "application/json"} | pause, refusal_body(status))


lost = of(RequestFault.RESET_BEFORE)
reply_lost = of(RequestFault.RESET_AFTER)
silence = of(RequestFault.LOST_REQUEST)


def sometimes(chance: Random, ratio: float, *faults: Fault) -> Fault:
    """Meet one of `faults` in so many of all cases, and pass in the others."""

    async def fault(call: Call, forward: Forward) -> Reply | None:
        return await (chance.choice(faults)(call, forward) if chance.random() < ratio else forward())

    return fault


def answered(reply: Reply) -> Fault:
    """Be answered as somebody was before; nothing happens."""

    async def fault(_: Call, __: Forward) -> Reply:
        return reply

    return fault


def delayed(seconds: float) -> Fault:
    """Arrive that much later."""

    async def fault(_: Call, forward: Forward) -> Reply:
        await asyncio.sleep(seconds)
        return await forward()

    return fault


class Held:
    """A request that is held in the network until it is let go, even when the caller has given up long before.

    `reply`: the request takes effect at once, and it is the answer that is held.
    """

    def __init__(self, *, reply: bool = False) -> None:
        self.arrived = asyncio.Event()
        self.answer: Reply | None = None
        """What the server says once it is asked."""
        self._reply = reply
        self._go = asyncio.Event()
        self._answered = asyncio.Event()

    async def __call__(self, _: Call, forward: Forward) -> Reply | None:
        """Be the fault."""
        if self._reply:
            self.answer = await forward()
        self.arrived.set()
        await self._go.wait()
        if not self._reply:
            self.answer = await forward()
        self._answered.set()
        return self.answer

    async def release(self) -> Reply:
        """Let it go on, and return what the server says to it."""
        assert self.arrived.is_set(), "no such request came"
        self._go.set()
        await self._answered.wait()
        assert self.answer is not None
        return self.answer


def before(act: Callable[[], Awaitable[None]]) -> Fault:
    """Do something as the request is about to arrive; it never does: `CRASH_BEFORE`, where that is a kill."""

    async def fault(_: Call, __: Forward) -> None:
        await act()

    return fault


def after(act: Callable[[], Awaitable[None]]) -> Fault:
    """Do something as the reply is about to arrive; it never does: `CRASH_AFTER`, where that is a kill."""

    async def fault(_: Call, forward: Forward) -> None:
        await forward()
        await act()

    return fault
