"""Who is let in: a place is for whoever has asked in full, memory is for all together, and both are given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from starlette.types import Message, Receive

from extender.web.concurrency import Bodies, CallQueue, Crowded, TooLarge

MIB = 1 << 20


def request(*chunks: bytes, whole: bool = True) -> Receive:
    """Return how a request is received whose body arrives in these chunks, and then ends or hangs."""

    async def receive() -> AsyncIterator[Message]:
        for number, chunk in enumerate(chunks):
            yield {"type": "http.request", "body": chunk, "more_body": not whole or number < len(chunks) - 1}
        await asyncio.Event().wait()

    return receive().__anext__


async def ask(line: CallQueue, asked: Receive, work: Callable[[], None] = lambda: None) -> str:
    """Ask for a turn, and tell what became of it."""
    try:
        async with line.admitted(asked) as body:
            work()
            return f"served {body.decode()}"
    except Crowded as refusal:
        return str(refusal)


async def test_calls_are_served_in_order() -> None:
    """One at a time, whole, and the last as well as the first."""
    line = CallQueue(Bodies(MIB), MIB, at_once=1, waiting=9)
    answers = await asyncio.gather(*(ask(line, request(b"no. ", b"%d" % number)) for number in range(10)))
    assert answers == [f"served no. {number}" for number in range(10)]


async def test_crowd_is_refused_before_the_first_call_is_worked_on() -> None:
    """Places are counted when people come, not when the one in front is done."""
    line, order = CallQueue(Bodies(MIB), MIB, at_once=1, waiting=2), list[str]()

    async def one() -> None:
        order.append(await ask(line, request(b"x")))

    await asyncio.gather(*(one() for _ in range(10)))
    assert order == ["too many calls are waiting"] * 7 + ["served x"] * 3


async def test_slow_requests_take_no_place() -> None:
    """However many have begun, whoever asks in full is served."""
    line = CallQueue(Bodies(MIB), MIB, at_once=1, waiting=0)
    slow = [asyncio.create_task(ask(line, request(b"x", whole=False))) for _ in range(100)]
    assert await ask(line, request(b"x")) == "served x"
    for call in slow:
        call.cancel()


async def test_full_line_reads_nothing() -> None:
    """What cannot be served is not received either."""
    line = CallQueue(Bodies(MIB), MIB, at_once=1, waiting=0)
    async with line.admitted(request(b"x")):
        assert await ask(line, request(whole=False)) == "too many calls are waiting"


async def test_memory_is_shared_and_given_back() -> None:
    """Two halves fit, a third does not; when one is gone it does."""
    bodies = Bodies(MIB)
    lines = [CallQueue(bodies, MIB, at_once=1, waiting=0) for _ in range(3)]
    half = b"x" * (MIB // 2)
    async with lines[0].admitted(request(half)):
        async with lines[1].admitted(request(half)):
            assert await ask(lines[2], request(half)) == "too much is being received"
        assert await ask(lines[2], request(half)) == f"served {half.decode()}"


async def test_request_that_is_larger_than_any_is_refused_while_it_arrives() -> None:
    """However much room there is for all together, which it gives back."""
    bodies = Bodies(MIB)
    line = CallQueue(bodies, 3, at_once=1, waiting=0)
    with pytest.raises(TooLarge):
        await ask(line, request(b"xx", b"xx", whole=False))
    assert await ask(line, request(b"x", b"xx")) == "served xxx"
    async with bodies.received(request(b"x" * MIB), MIB):
        pass


async def test_place_of_a_call_that_failed_is_free() -> None:
    """So is its memory."""
    line = CallQueue(Bodies(1), MIB, at_once=1, waiting=0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await ask(line, request(b"x"), lambda: print(1 / 0))
    assert await ask(line, request(b"x")) == "served x"
