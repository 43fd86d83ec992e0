"""Between one client and the API server: requests that are slow, lost, doubled or refused, and replies that never come.

What a request does at the server does not depend on whether its client still waits, or still lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from benchmarks.simulated.double.api import HttpRequest, Reply, Stream
from tests.simulation.mix import REQUEST_FAULTS
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.world.server import Server
from tests.world.http_faults import FATES, Ending, Fate, RequestFault, refusal_body

_LONGEST_SECONDS = 12.0
"""No request is under way for longer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client receives: a document, or a stream that begins."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Stream | None = None


class Wire:
    """One client's connection."""

    def __init__(self, client: str, server: Server, storm: Storm, trace: Trace, random: Random) -> None:
        self.client = client
        self._server = server
        self._storm = storm
        self._trace = trace
        self._random = random

    async def call(self, request: HttpRequest, *, held_seconds: float = 0.0) -> Answer:
        """Send a request and wait for its answer, for ever if need be; raises `ConnectionResetError`.

        `held_seconds`: how long it lies about before it is on its way.
        """
        loop, random = asyncio.get_running_loop(), self._random
        fault = self._storm.choose(REQUEST_FAULTS, random)
        out, back = held_seconds + random.uniform(0.001, 0.02), random.uniform(0.001, 0.02)
        told: asyncio.Future[Answer] = loop.create_future()
        if fault is not None:
            self._trace.fault(fault, self.client, f"{request.method} {request.path}")
            self._storm.at_the_end(partial(self._reset, told))
        if fault is RequestFault.SLOW:
            out += random.uniform(0.0, _LONGEST_SECONDS / 2)
            back += random.uniform(0.0, _LONGEST_SECONDS / 2)
        fate = FATES[fault] if fault else Fate()
        if fault is RequestFault.INVALID:
            self._server.refuse(request)
        if fate.arrivals:
            loop.call_later(out, self._arrive, request, told, back, fate)
        else:
            loop.call_later(out + back, self._end, told, fate, Answer(0))
        for _ in range(1, fate.arrivals):
            loop.call_later(out + random.uniform(0.0, _LONGEST_SECONDS), self._server.answer, self.client, request)
        return await told

    def _arrive(self, request: HttpRequest, told: asyncio.Future[Answer], back: float, fate: Fate) -> None:
        answer = _to_answer(self._server.answer(self.client, request))
        asyncio.get_running_loop().call_later(back, self._end, told, fate, answer)

    def _end(self, told: asyncio.Future[Answer], fate: Fate, answer: Answer) -> None:
        if told.done():
            return
        match fate.ending:
            case Ending.TOLD:
                told.set_result(answer if fate.refusal is None else self._refusal(fate.refusal))
            case Ending.RESET:
                self._reset(told)

    def _refusal(self, code: int) -> Answer:
        headers = {"Retry-After": str(self._random.randint(1, 5))} if code == 429 else {}
        return Answer(code, refusal_body(code), headers)

    def _reset(self, told: asyncio.Future[Answer]) -> None:
        if not told.done():
            told.set_exception(ConnectionResetError("connection reset"))


def _to_answer(reply: Reply | Stream) -> Answer:
    if isinstance(reply, Stream):
        return Answer(200, stream=reply)
    return Answer(reply.code, msgspec.json.encode(reply.body))
