"""List, then watch, for ever: keep a cache of one kind of object in step with the API server.

A list is one consistent read; it replaces the cache whole or not at all. A watch goes on from the last version that was
heard, so nothing is missed and nothing is replayed from a guess. 410 anywhere means list anew. A bookmark changes nothing
but the version, and proves that the stream is alive. A stream without a byte for too long is dead, whatever TCP says.

Where etcd was restored from a backup, versions begin anew further back. A watch from a version that is still to come says
nothing. So the server is asked how far it is whenever a watch was cut or said nothing. Some kinds of object change often
and others seldom. The API server may have overtaken the version of a seldom one before anybody asks; so whoever notices
tells all others.

The transport is a protocol, the time is the event loop's and chance is a parameter: tests run hours in milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, NoReturn, Protocol

from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.objects.versions import Listing, is_before
from extender.kit.backoff import Pauses
from extender.kit.plain_structlog import structlog
from extender.kit.turns import Turn
from extender.kubernetes.documents import (
    BrokenStream,
    Expired,
    Lines,
    ListMeta,
    Object,
    Overlong,
    Text,
    Unread,
    name_listed,
    name_object,
    read_page,
)
from extender.kubernetes.intake import Intake
from extender.kubernetes.oversized_objects import OversizedObjects
from extender.kubernetes.sink import Sink

SLICE_BYTES = 1 << 20
"""Of a page, between two turns of the event loop: reading one heavy object takes as long as a turn may."""

log = structlog.get_logger(__name__)


class Unavailable(Exception):
    """The server cannot be reached or will not answer now."""

    def __init__(
        self, reason: str, *, denied: bool = False, missing: bool = False, retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.denied = denied
        self.missing = missing
        """The server does not have what it was asked for."""
        self.retry_after_seconds = retry_after_seconds


class Source(Protocol):
    """One resource of the API server; every method raises `Expired` or `Unavailable`."""

    async def list_page(self, continuation: str | None) -> Text | Overlong:
        """Read one page, or the beginning of one that is too long even with a single object.

        The first one asks for no version, which is a consistent read.
        """
        ...

    async def latest_version(self) -> str:
        """Return the version that a consistent read is of."""
        ...

    def watch(self, resource_version: str) -> AsyncGenerator[bytes]:
        """Stream what happened after `resource_version`, with bookmarks, in chunks of any size.

        The first chunk comes as soon as the server has agreed, and may be empty.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds and bytes of one reflector."""

    silence_seconds: float = 55.0
    backoff_seconds: float = 0.1
    max_backoff_seconds: float = 5.0
    max_line_bytes: int = 12 << 20


class Reflector(Generic[Object]):
    """Drive one source into one sink.

    Args:
        name: For logs.
        source: Where the objects are.
        kind: What they are.
        sink: Who keeps them.
        keep: What of each the sink hears of; `None`: nothing. What is left out costs no memory.
        knows: Whether the sink has this version of an object already, by the reply to a write of ours; it is not read again.
        timing: Limits and delays.
        random: Spreads the delays of several replicas.
        told: Hears of each heavy object, and of each that was passed over.
        peers: All reflectors of the same server; each lists again when one notices that the server was set back.

    """

    def __init__(
        self,
        name: str,
        source: Source,
        kind: type[Object],
        sink: Sink[Object],
        *,
        keep: Callable[[Object], Object | None] = lambda item: item,
        knows: Callable[[ObjectMeta], bool] = lambda metadata: False,
        timing: Timing = Timing(),
        random: Random | None = None,
        told: Callable[[str], None] = lambda fate: None,
        peers: Sequence[Reflector[Any]] = (),
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
        self._intake: Intake[Object] = Intake(kind, sink, keep, knows, OversizedObjects(name, told))
        self._timing = timing
        rng = random or Random()  # noqa: S311 - no secret
        self._pauses = Pauses(timing.backoff_seconds, timing.max_backoff_seconds, random=rng.random)
        self._version = ""
        """What was heard of last; empty before the first list."""
        self._has_to_list = True
        self._in_doubt = False
        """The server may not know that version yet: it was away, or a watch from there has said nothing."""
        self._events = 0
        self._peers = peers
        self._warnings = 0
        """Of peers, that the server was set back, which no list has followed yet."""
        self._patience: asyncio.Timeout | None = None
        """Of whoever waits for the next chunk."""

    def list_anew(self) -> None:
        """List once more and believe it, whatever was heard before: the server was set back."""
        self._warnings += 1
        self._has_to_list = True
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> NoReturn:
        """Follow the source until cancelled."""
        clock = asyncio.get_running_loop()
        failures = 0
        while True:
            events, started, wait = self._events, clock.time(), 0.0
            try:
                if self._in_doubt and not self._has_to_list:
                    await self._ask()
                if self._has_to_list:
                    await self._list()
                await self._follow()
            except Expired:
                self._has_to_list = True
                self._stumble("version expired")
            except BrokenStream as error:
                if self._events == events:  # going on from here would only meet the same bytes again
                    self._has_to_list = True
                self._stumble(str(error))
            except Unavailable as error:
                wait, self._in_doubt = error.retry_after_seconds, True  # it may come back as another one
                self._stumble(str(error), denied=error.denied)
            except TimeoutError:
                silent = f"silent for {self._timing.silence_seconds:g} s"
                self._stumble("the API server was set back" if self._warnings else silent)
            if self._events > events or clock.time() - started > self._timing.max_backoff_seconds:
                failures = 0
            failures += 1
            await asyncio.sleep(max(wait, self._pauses.after(failures)))

    async def _ask(self) -> None:
        """Ask how far the server is: where it is not as far as it was heard to be, it was set back."""
        self._has_to_list |= is_before(await self._source.latest_version(), self._version)
        self._in_doubt = False

    async def _list(self) -> None:
        warnings, intake = self._warnings, self._intake
        listed = await list_objects(self._source, intake.decode, intake.keep, intake.oversized)
        has_noticed = is_before(listed.version, self._version)
        if was_set_back := has_noticed or warnings > 0:
            log.warning("the API server was set back", resource=self.name, was=self._version, now=listed.version)
        if has_noticed and not warnings:
            self._warn_peers()
        unread = tuple(item.metadata for item in listed.unread)
        await intake.replace(listed.objects, Listing("" if was_set_back else listed.version, unread))
        self._warnings -= warnings
        self._version, self._has_to_list, self._in_doubt = listed.version, self._warnings > 0, False
        self._hear()
        self.synced.set()
        log.info("listed", resource=self.name, kept=len(listed.objects), resource_version=self._version)

    def _warn_peers(self) -> None:
        for peer in self._peers:
            if peer is not self:
                peer.list_anew()

    async def _follow(self) -> None:
        """Watch from the last version until the stream ends, or a list has to be made."""
        lines, self._in_doubt = Lines(self._timing.max_line_bytes), True
        async with aclosing(self._source.watch(self._version)) as chunks:
            while not self._has_to_list:
                chunk = await self._next(chunks)
                if chunk is None:
                    return
                self._hear()
                turn = Turn()
                for line in lines.feed(chunk):
                    self._version, self._in_doubt = self._intake.take(line), False
                    self._events += 1
                    if turn.is_over():  # a chunk may hold a thousand events
                        await turn.end()
                await turn.end()  # a full buffer must not starve the verbs

    async def _next(self, chunks: AsyncGenerator[bytes]) -> bytes | None:
        async with asyncio.timeout(self._timing.silence_seconds) as patience:
            self._patience = patience
            try:
                return await anext(chunks, None)
            finally:
                self._patience = None

    def _hear(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self.trouble, self.denied = None, False

    def _stumble(self, reason: str, *, denied: bool = False) -> None:
        self.trouble, self.denied = reason, denied
        log.warning("watch interrupted", resource=self.name, reason=reason, relist=self._has_to_list)


@dataclass(frozen=True, slots=True)
class Listed(Generic[Object]):
    """A whole list."""

    objects: list[Object]
    """What is to be kept of it."""
    version: str
    """To watch from."""
    unread: tuple[Unread, ...] = ()
    """Those that exist, too."""


async def list_objects(
    source: Source,
    decode: Callable[[Text], Object],
    keep: Callable[[Object], Object | None] = lambda item: item,
    oversized: OversizedObjects | None = None,
) -> Listed[Object]:
    """Read all pages, one after the other; others have their turns between two objects.

    Raises `Expired`, `Unavailable`, or `BrokenStream` for a page that cannot be read.
    """
    oversized, listed = oversized or OversizedObjects("objects"), list[Object | Unread]()
    version = continuation = None
    while True:
        metadata = await _read_into(listed, await source.list_page(continuation), decode, keep, oversized)
        version = version or metadata.resource_version
        continuation = metadata.continuation
        if not continuation:
            break
    unread = tuple(item for item in listed if isinstance(item, Unread))
    for item in unread:
        oversized.pass_over(item)
    return Listed([item for item in listed if not isinstance(item, Unread)], version, unread)


async def _read_into(
    listed: list[Object | Unread],
    page: Text | Overlong,
    decode: Callable[[Text], Object],
    keep: Callable[[Object], Object | None],
    oversized: OversizedObjects,
) -> ListMeta:
    """Add what is to be kept of a page, which is not needed any more when the next one comes."""
    if isinstance(page, Overlong):
        metadata, unread = name_listed(page)
        listed.append(unread)
        return metadata
    document, read_bytes, turn = read_page(page), 0, Turn()
    for text in document.items or ():
        size = memoryview(text).nbytes
        if (read_bytes := read_bytes + size) > SLICE_BYTES or turn.is_over():
            await turn.end()
            read_bytes = 0
        try:
            item = decode(text)
        except BrokenStream as error:
            if (missing := name_object(text, str(error))) is None:
                raise
            listed.append(missing)
            continue
        oversized.weigh(item.metadata, size)
        if (kept := keep(item)) is not None:
            listed.append(kept)
    return document.metadata
