"""List, then watch, for ever: keep a cache of one kind of object in step with the API server.

A list is one consistent read; it replaces the cache whole or not at all. A watch goes on from the last version that was
heard, so nothing is missed and nothing is replayed from a guess. 410 anywhere means list anew. A bookmark changes nothing but
the version, and proves that the stream is alive; a stream without a byte for too long is dead, whatever TCP says.

The transport is a protocol, the time is the event loop's and chance is a parameter: tests run hours in milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec
import structlog

from extender.cluster.objects import MAX_POD_BYTES, Node, ObjectMeta, Pod

Object = TypeVar("Object", Node, Pod)
Object_contra = TypeVar("Object_contra", Node, Pod, contravariant=True)

log = structlog.get_logger(__name__)


class Expired(Exception):
    """The server no longer knows this version or continuation (410)."""


class Unavailable(Exception):
    """The server cannot be reached or will not answer now."""

    def __init__(self, reason: str, *, denied: bool = False, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.denied = denied
        self.retry_after_seconds = retry_after_seconds


class BrokenStream(Exception):
    """What arrived cannot be read, or says itself that it went wrong."""


class Source(Protocol):
    """One resource of the API server; every method raises `Expired` or `Unavailable`."""

    async def list_page(self, continuation: str | None) -> bytes:
        """Read one page; the first one asks for no version, which is a consistent read."""
        ...

    def watch(self, resource_version: str) -> AsyncGenerator[bytes]:
        """Stream what happened after `resource_version`, with bookmarks, in chunks of any size.

        The first chunk comes as soon as the server has agreed, and may be empty.
        """
        ...


class Sink(Protocol[Object_contra]):
    """Whoever keeps the cache."""

    def replaced(self, objects: Sequence[Object_contra]) -> None:
        """Take these for all that exist."""
        ...

    def changed(self, item: Object_contra) -> None:
        """Take this for the newest version of an object, new or known."""
        ...

    def deleted(self, item: Object_contra) -> None:
        """Take this for the last version of an object that is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds and bytes of one reflector."""

    silence_seconds: float = 55.0
    backoff_seconds: float = 0.1
    max_backoff_seconds: float = 5.0
    max_line_bytes: int = 2 << 20


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    continuation: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    """A version, in the shape of an object all of whose fields are empty: a pod's `containers` is null here."""

    metadata: ObjectMeta


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_decode_failure = msgspec.json.Decoder(_Failure).decode
_GONE = 410
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Reflector(Generic[Object]):
    """Drive one source into one sink.

    Args:
        name: For logs.
        source: Where the objects are.
        kind: What they are.
        sink: Who keeps them.
        keep: What of each the sink hears of; `None`: nothing. What is left out costs no memory.
        timing: Limits and delays.
        random: Spreads the delays of several replicas.

    """

    def __init__(
        self,
        name: str,
        source: Source,
        kind: type[Object],
        sink: Sink[Object],
        *,
        keep: Callable[[Object], Object | None] = lambda item: item,
        timing: Timing = Timing(),
        random: Random | None = None,
    ) -> None:
        self.name = name
        self.synced = asyncio.Event()
        """Set once the first list is in the sink."""
        self.trouble: str | None = "not listed yet"
        """Why nothing is heard at the moment."""
        self.denied = False
        """The server told us that we may not."""
        self.heard_at = 0.0
        """Loop time of the last list, event or bookmark."""
        self._source = source
        self._decode: Callable[[bytes], Object] = decoder(kind)
        self._sink: Sink[Object] = sink
        self._keep: Callable[[Object], Object | None] = keep
        self._timing = timing
        self._random = random or Random()  # noqa: S311 - no secret
        self._version: str | None = None
        self._events = 0

    async def run(self) -> NoReturn:
        """Follow the source until cancelled."""
        clock = asyncio.get_running_loop()
        failures = 0
        while True:
            events, started, wait = self._events, clock.time(), 0.0
            try:
                if self._version is None:
                    await self._list()
                await self._follow()
            except Expired:
                self._version = None
                self._stumble("version expired")
            except BrokenStream as error:
                if self._events == events:  # going on from here would only meet the same bytes again
                    self._version = None
                self._stumble(str(error))
            except Unavailable as error:
                wait = error.retry_after_seconds
                self._stumble(str(error), denied=error.denied)
            except TimeoutError:
                self._stumble(f"silent for {self._timing.silence_seconds:g} s")
            if self._events > events or clock.time() - started > self._timing.max_backoff_seconds:
                failures = 0
            await asyncio.sleep(max(wait, self._delay(failures)))
            failures += 1

    async def _list(self) -> None:
        kept, self._version = await list_objects(self._source, self._decode, self._keep)
        self._sink.replaced(kept)
        self._hear()
        self.synced.set()
        log.info("listed", resource=self.name, kept=len(kept), resource_version=self._version)

    async def _follow(self) -> None:
        """Watch from the last version until the stream ends."""
        assert self._version is not None
        lines = Lines(self._timing.max_line_bytes)
        async with aclosing(self._source.watch(self._version)) as chunks:
            while True:
                async with asyncio.timeout(self._timing.silence_seconds):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                self._hear()
                for line in lines.feed(chunk):
                    self._take(line)
                await asyncio.sleep(0)  # a full buffer must not starve the verbs

    def _take(self, line: bytes) -> None:
        try:
            event = _decode_event(line)
            if event.type == "ERROR":
                failure = _decode_failure(event.object)
                if failure.code == _GONE:
                    raise Expired
                raise BrokenStream(f"server error {failure.code}: {failure.message}")
            item = _decode_bookmark(event.object) if event.type == "BOOKMARK" else self._decode(event.object)
        except _UNREADABLE as error:
            raise BrokenStream(f"unreadable line: {error}") from error
        if not item.metadata.resource_version:
            raise BrokenStream(f"{event.type} without a version")
        if not isinstance(item, _Bookmark) and (kept := self._keep(item)) is not None:
            (self._sink.deleted if event.type == "DELETED" else self._sink.changed)(kept)
        self._version = item.metadata.resource_version
        self._events += 1

    def _hear(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self.trouble, self.denied = None, False

    def _stumble(self, reason: str, *, denied: bool = False) -> None:
        self.trouble, self.denied = reason, denied
        log.warning("watch interrupted", resource=self.name, reason=reason, relist=self._version is None)

    def _delay(self, failures: int) -> float:
        longest = min(self._timing.max_backoff_seconds, self._timing.backoff_seconds * 2.0 ** min(failures, 30))
        return longest * self._random.uniform(0.5, 1.0)


def decoder(kind: type[Object]) -> Callable[[bytes], Object]:
    """Return what reads one object; it raises msgspec's errors. Of a pod that is too large to be written to it takes note."""
    decode = msgspec.json.Decoder(kind).decode

    def measure(text: bytes) -> Object:
        item = decode(text)
        return item if len(text) <= MAX_POD_BYTES else msgspec.structs.replace(item, json_bytes=len(text))

    return measure if kind is Pod else decode


async def list_objects(
    source: Source, decode: Callable[[bytes], Object], keep: Callable[[Object], Object | None] = lambda item: item
) -> tuple[list[Object], str]:
    """Read all pages, and return what is to be kept of the objects with the version to watch from.

    Raises `Expired`, `Unavailable`, or `BrokenStream` for a page that cannot be read.
    """
    kept: list[Object] = []
    version = continuation = None
    while True:
        try:
            page = _decode_page(await source.list_page(continuation))
            kept += [item for item in map(keep, map(decode, page.items or ())) if item is not None]
        except _UNREADABLE as error:
            raise BrokenStream(f"unreadable page: {error}") from error
        version = version or page.metadata.resource_version
        continuation = page.metadata.continuation
        if not continuation:
            return kept, version


class Lines:
    """Cut chunks into lines; a half one waits for its rest, one that grows beyond the limit raises `BrokenStream`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that `chunk` completes, without their ends."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._grow(end)
            line = bytes(self._rest)
            self._rest.clear()
            if line:
                yield line
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        if len(self._rest) + len(part) > self._max_bytes:
            raise BrokenStream(f"a line of more than {self._max_bytes} bytes")
        self._rest += part
