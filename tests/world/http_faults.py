"""What can go wrong between a client and the double: a vocabulary of faults, and `Unreliable`, which brings them to HTTP.

A fault is data: `FATES` says of a request whether the store carries it out (never, once, twice), what the client is told and
how it ends; `spoilt_line` says what the last bytes of a stream are. So a simulation without sockets may do the same faults.

    busy = Rule(RequestFault.BUSY, method="PATCH", path="/api/v1/nodes/*", seconds=(1, 5), times=3)
    late = Rule(RequestFault.SLOW, path="*/binding", seconds=(0, 2))    # replies overtake each other
    faults = Unreliable([busy, late, Rule(StreamFault.EXPIRED, path="*/pods")])
    async with ApiServer(store, faults=faults):
        ...
        faults.lift(late)     # whoever waits because of it goes on at once
        assert faults.struck[busy] == 3
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from fnmatch import fnmatchcase
from random import Random
from typing import Final

import msgspec
from aiohttp import web

from benchmarks.simulated.double.server import Handler
from benchmarks.simulated.double.status import StatusError


class RequestFault(StrEnum):
    """What can become of one request and its reply."""

    SLOW = "request slow"
    LOST_REQUEST = "request lost"
    LOST_REPLY = "reply lost after commit"
    RESET_BEFORE = "connection reset before commit"
    RESET_AFTER = "connection reset after commit"
    DUPLICATED = "request duplicated"
    UNAUTHORIZED = "401 for a token that has run out"
    FORBIDDEN = "403 by a policy"
    CONFLICT = "409 out of nowhere"
    EXPIRED = "410 for a version that is forgotten"
    INVALID = "422 out of nowhere"
    BUSY = "429 with Retry-After"
    ERROR = "500 without commit"
    ERROR_AFTER = "500 after commit"
    UNAVAILABLE = "503"


class StreamFault(StrEnum):
    """What can become of a watch that has begun."""

    LATE = "watch late by seconds"
    CUT = "watch cut"
    BROKEN = "watch reset in the middle of a line"
    SILENT = "watch silent"
    EXPIRED = "410 in a watch"
    GARBAGE = "garbage in a watch"


Fault = RequestFault | StreamFault


class Ending(Enum):
    """How a client learns of its request."""

    TOLD = auto()
    SILENT = auto()
    RESET = auto()


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one request."""

    arrivals: int = 1
    """How often the store carries it out."""
    refusal: int | None = None
    """The status code that the client is told instead of the store's answer."""
    ending: Ending = Ending.TOLD


FATES: Final[Mapping[RequestFault, Fate]] = {
    RequestFault.SLOW: Fate(),
    RequestFault.LOST_REQUEST: Fate(0, ending=Ending.SILENT),
    RequestFault.LOST_REPLY: Fate(ending=Ending.SILENT),
    RequestFault.RESET_BEFORE: Fate(0, ending=Ending.RESET),
    RequestFault.RESET_AFTER: Fate(ending=Ending.RESET),
    RequestFault.DUPLICATED: Fate(2),
    RequestFault.UNAUTHORIZED: Fate(0, refusal=401),
    RequestFault.FORBIDDEN: Fate(0, refusal=403),
    RequestFault.CONFLICT: Fate(0, refusal=409),
    RequestFault.EXPIRED: Fate(0, refusal=410),
    RequestFault.INVALID: Fate(0, refusal=422),
    RequestFault.BUSY: Fate(0, refusal=429),
    RequestFault.ERROR: Fate(0, refusal=500),
    RequestFault.ERROR_AFTER: Fate(refusal=500),
    RequestFault.UNAVAILABLE: Fate(0, refusal=503),
}
_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
}


_TOO_MANY: Final = 429


def refusal_body(code: int) -> bytes:
    """Return what comes with a refusal out of nowhere: a `Status`, but a few words of a server that is too busy for one."""
    if code == _TOO_MANY:
        return b"Too many requests, please try again later.\n"
    return msgspec.json.encode(StatusError(code, _REASONS[code], "out of nowhere").status)


def spoilt_line(fault: StreamFault) -> bytes:
    """Return the last bytes that a client reads of a spoilt stream."""
    match fault:
        case StreamFault.BROKEN:
            return b'{"type":"MODIFIED","object":{"metadata":{"na'
        case StreamFault.EXPIRED:
            expired = StatusError(410, "Expired", "too old resource version")
            return msgspec.json.encode({"type": "ERROR", "object": expired.status}) + b"\n"
        case StreamFault.GARBAGE:
            return b'{"type":"MODIFIED","object":\xff\xfe}\n'
    return b""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Which requests meet a fault; a rule is itself, however like another it is."""

    fault: Fault
    method: str = "*"
    path: str = "*"
    """A pattern as of `fnmatch`, without the query."""
    client: str = "*"
    """A pattern of the User-Agent; the product's is `gputopo-extender`."""
    probability: float = 1.0
    times: int | None = None
    """How often at most."""
    seconds: tuple[float, float] = (1.0, 1.0)
    """Drawn evenly: of `SLOW`, the delay before the store and again before the reply; of `BUSY`, Retry-After, whole seconds;
    of `LATE`, the delay of every line; of other stream faults, how long all is well."""

    def concerns(self, request: web.BaseRequest) -> bool:
        """Whether the rule is about such requests."""
        return (
            fnmatchcase(request.method, self.method)
            and fnmatchcase(request.path, self.path)
            and fnmatchcase(request.headers.get("User-Agent", ""), self.client)
        )


class Unreliable:
    """The first rule that concerns a request and strikes decides; `random` says whether and for how long.

    Rules may be added and lifted at any time. A client whose reply is lost waits until it gives up, until the rule is lifted
    (then its connection is reset), or until the server ends.
    """

    def __init__(self, rules: Iterable[Rule] = (), *, random: Random | None = None) -> None:
        self.struck: Counter[Rule] = Counter()
        """How often each rule was applied."""
        self._random = random or Random(0)
        self._rules: dict[Rule, asyncio.Event] = {}
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> None:
        """Let the rule hold, after those that hold already."""
        self._rules[rule] = asyncio.Event()

    def lift(self, rule: Rule) -> None:
        """End the rule, and whatever wait it has caused."""
        self._rules.pop(rule).set()

    @contextmanager
    def during(self, rule: Rule) -> Iterator[Rule]:
        """Let the rule hold for the length of a block."""
        self.add(rule)
        try:
            yield rule
        finally:
            self.lift(rule)

    async def exchange(self, request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
        """Answer one request as its fate says."""
        rule = self._rule(request, RequestFault)
        if rule is None:
            return await handler(request)
        assert isinstance(rule.fault, RequestFault)
        lifted, fate, answer = self._rules[rule], FATES[rule.fault], web.StreamResponse()
        slow = rule.fault is RequestFault.SLOW
        await _wait(lifted, self._seconds(rule) if slow else 0.0)
        # A watch that begins is told at once: it can be refused or reset, but neither doubled nor withheld.
        for _ in range(min(fate.arrivals, 1) if "watch" in request.query else fate.arrivals):
            answer = await handler(request)
        await _wait(lifted, self._seconds(rule) if slow else 0.0)
        if fate.ending is Ending.TOLD:
            return answer if fate.refusal is None else self._refusal(rule, fate.refusal)
        if fate.ending is Ending.SILENT:
            await lifted.wait()
        _reset(request)
        return answer

    async def stream(self, request: web.BaseRequest, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Pass on the lines of a watch, late or only for a while; then spoil it."""
        rule = self._rule(request, StreamFault)
        if rule is None:
            async for line in lines:
                yield line
            return
        assert isinstance(rule.fault, StreamFault)
        lifted, seconds = self._rules[rule], self._seconds(rule)
        if rule.fault is StreamFault.LATE:
            async for line in lines:
                await _wait(lifted, seconds)
                yield line
            return
        async for line in _until(asyncio.get_running_loop().time() + seconds, lines):
            yield line
        if rule.fault is StreamFault.SILENT:
            await lifted.wait()
        if last := spoilt_line(rule.fault):
            yield last
        if rule.fault is StreamFault.BROKEN:
            _reset(request)

    def _rule(self, request: web.BaseRequest, kind: type[Fault]) -> Rule | None:
        for rule in self._rules:
            spent = rule.times is not None and self.struck[rule] >= rule.times
            meant = isinstance(rule.fault, kind) and not spent and rule.concerns(request)
            if meant and self._random.random() < rule.probability:
                self.struck[rule] += 1
                return rule
        return None

    def _seconds(self, rule: Rule) -> float:
        return self._random.uniform(*rule.seconds)

    def _refusal(self, rule: Rule, code: int) -> web.Response:
        if code == _TOO_MANY:
            pause = {"Retry-After": f"{self._seconds(rule):.0f}"}
            return web.Response(status=code, body=refusal_body(code), content_type="text/plain", headers=pause)
        return web.Response(status=code, body=refusal_body(code), content_type="application/json")


async def _wait(lifted: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await lifted.wait()


async def _until(end: float, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Pass on what comes before `end`, a loop time."""
    with suppress(TimeoutError, StopAsyncIteration):
        while True:
            async with asyncio.timeout_at(end):
                line = await anext(lines)
            yield line


def _reset(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
