"""What the API server's pages, events and objects say, from bytes; all that nobody here reads is passed over unparsed.

Whoever may create pods decides how large and how deep these are. An object costs one pass over its bytes. One that cannot be
read whole is still known by name: the API server writes an object's name, UID and version before anything that grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.devices import ResourceClaim, ResourceSlice
from extender.cluster.objects.group_sizes import GroupMaker
from extender.cluster.objects.kinds import MAX_POD_BYTES, Node, ObjectMeta, Pod

Object = TypeVar("Object", Node, Pod, PodDisruptionBudget, ResourceClaim, ResourceSlice, GroupMaker)
Text = bytes | bytearray | msgspec.Raw
Change = Literal["ADDED", "MODIFIED", "DELETED"]

GONE: Final = 410
HEAD_BYTES: Final = 4 << 10
"""More than a page and an object take up to the object's version: names and tokens are short."""
HEAVY_BYTES: Final = 1 << 20
"""Far more than the JSON of any object that serves a purpose."""


class BrokenStream(Exception):
    """What arrived cannot be read, or says itself that it went wrong."""


class Expired(Exception):
    """The server no longer knows a version or continuation (410)."""


class ListMeta(msgspec.Struct, rename="camel"):
    """`metadata` of a list."""

    resource_version: str
    continuation: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct):
    """One page of a list, with its objects as they came."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Added(msgspec.Struct, Generic[Object], tag_field="type", tag="ADDED"):
    """An object that is new."""

    object: Object


class Modified(msgspec.Struct, Generic[Object], tag_field="type", tag="MODIFIED"):
    """A new version of an object."""

    object: Object


class Deleted(msgspec.Struct, Generic[Object], tag_field="type", tag="DELETED"):
    """The last version of an object."""

    object: Object


class Versioned(msgspec.Struct):
    """A version, in the shape of an object all of whose fields are empty: a pod's `containers` is null here."""

    metadata: ObjectMeta


class Bookmark(msgspec.Struct, tag_field="type", tag="BOOKMARK"):
    """All before this version was told."""

    object: Versioned


class ApiStatus(msgspec.Struct):
    """Why the server ends a stream."""

    code: int = 0
    message: str = ""


class WatchError(msgspec.Struct, tag_field="type", tag="ERROR"):
    """The last word of a stream that went wrong."""

    object: ApiStatus


Event = Added[Object] | Modified[Object] | Deleted[Object] | Bookmark | WatchError


@dataclass(frozen=True, slots=True)
class Unread:
    """An object that exists, or existed, and of which no more can be told."""

    metadata: ObjectMeta
    """Its name, UID and version."""
    reason: str
    change: Change | None = None
    """What a watch said of it; `None` in a list."""


@dataclass(frozen=True, slots=True)
class Overlong:
    """The beginning of something that is longer than it may be."""

    head: bytes
    max_bytes: int


def decoder(kind: type[Object]) -> Callable[[Text], Object]:
    """Return what reads one object; it raises `BrokenStream`."""
    read = _reader(msgspec.json.Decoder(kind).decode)
    return lambda text: measured(read(text), text)


def measured(item: Object, text: Text) -> Object:
    """Return the object as read from `text`; a pod that is too large to be written to says so."""
    if len(text) <= MAX_POD_BYTES or not isinstance(item, Pod):
        return item
    return replace(item, json_bytes=len(text))


def event_decoder(kind: type[Object]) -> Callable[[Text], Event[Object]]:
    """Return what reads one event about such objects, in one pass; it raises `BrokenStream`."""
    events: Any = Added[kind] | Modified[kind] | Deleted[kind] | Bookmark | WatchError  # type: ignore[valid-type]
    return _reader(msgspec.json.Decoder(events).decode)


T = TypeVar("T")


def _reader(decode: Callable[[Text], T]) -> Callable[[Text], T]:
    def read(text: Text) -> T:
        try:
            try:
                return decode(text)
            except RecursionError:
                return decode(without_managed_fields(text))
        except (ValueError, RecursionError) as error:  # of UTF-8 and of JSON
            raise BrokenStream(f"unreadable: {error}") from error

    return read


read_page: Callable[[Text], ListPage] = _reader(msgspec.json.Decoder(ListPage).decode)
_read_status: Callable[[Text], ApiStatus] = _reader(msgspec.json.Decoder(ApiStatus).decode)
_NO_REASON: Final = "no reason given"
read_whole: Callable[[Text], Mapping[str, Any]] = _reader(msgspec.json.Decoder(dict[str, Any]).decode)
read_metadata: Callable[[Text], Versioned] = _reader(msgspec.json.Decoder(Versioned).decode)

_MANAGED = re.compile(rb',"managedFields":\[\{')
_MANAGED_END = re.compile(rb'\}\](?=\}?,"[a-z]|\}\}\n?\Z)')
"""No string can hold this: inside one a quote is escaped, after one comes no letter, and no text ends within one.

Metadata that was asked for alone ends the text.
"""


def without_managed_fields(text: Text) -> bytes:
    """Return the JSON of objects without `metadata.managedFields`: the one part that whoever writes may nest at will.

    The API server takes ten thousand levels; a decoder that calls itself for each ends at a thousand.
    """
    kept, position = list[bytes | bytearray](), 0
    while start := _MANAGED.search(text, position):
        end = _MANAGED_END.search(text, start.end())
        if end is None:
            break
        kept.append(text[position : start.start()])
        position = end.end()
    return b"".join((*kept, text[position:]))


_IDENTITY = (
    rb'\{(?:"kind":"\w+",)?(?:"apiVersion":"[\w./]+",)?"metadata":\{"name":"(?P<name>[^"\\]+)",'
    rb'(?:"generateName":"[^"\\]*",)?(?:"namespace":"(?P<namespace>[^"\\]+)",)?'
    rb'"uid":"(?P<uid>[^"\\]+)","resourceVersion":"(?P<version>\d+)"'
)
_OBJECT = re.compile(_IDENTITY)
_EVENT = re.compile(rb'\{"type":"(?P<change>ADDED|MODIFIED|DELETED)","object":' + _IDENTITY)
_PAGE = re.compile(
    rb'\{(?:"kind":"\w+",)?(?:"apiVersion":"[\w./]+",)?"metadata":\{"resourceVersion":"(?P<listed>\d+)"'
    rb'(?:,"continue":"(?P<continue>[^"\\]*)")?(?:,"remainingItemCount":\d+)?\},"items":\[' + _IDENTITY
)


def name_object(text: Text, reason: str) -> Unread | None:
    """Return what the beginning of an object tells of it; `None` where it is none that the API server has written."""
    match = _OBJECT.match(text)
    return Unread(_metadata(match), reason) if match else None


def name_changed(text: Text, reason: str) -> Unread | None:
    """Return what the beginning of an event tells of its object; `None` where it is no event about one."""
    match = _EVENT.match(text)
    if match is None:
        return None
    change: Change = match["change"].decode()  # type: ignore[assignment]
    return Unread(_metadata(match), reason, change)


def newer_version(text: Text) -> ObjectMeta | None:
    """Return whose version an event tells of, from its beginning; `None` where it is no such event, or begins otherwise."""
    match = _EVENT.match(text)
    return _metadata(match) if match and match["change"] != b"DELETED" else None


def name_listed(page: Overlong) -> tuple[ListMeta, Unread]:
    """Return what the beginning of a page tells that has one object and is too long; raises `BrokenStream`."""
    match = _PAGE.match(page.head)
    if match is None:
        raise BrokenStream(f"a page of more than {page.max_bytes} bytes that begins like none")
    listed = ListMeta(match["listed"].decode(), (match["continue"] or b"").decode(errors="replace"))
    return listed, Unread(_metadata(match), f"more than {page.max_bytes} bytes")


def _metadata(match: re.Match[bytes]) -> ObjectMeta:
    name, namespace, uid, version = (
        (match[part] or b"").decode(errors="replace") for part in ("name", "namespace", "uid", "version")
    )
    return ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=version)


class Lines:
    """Cut chunks into lines; a half one waits for its rest, and of one that grows beyond the limit the head is told at once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._is_told = False
        """Of the line that is under way nothing more is wanted."""

    def feed(self, chunk: bytes) -> Iterator[Text | Overlong]:
        """Yield the lines that `chunk` completes, without their ends, and the head of one that has become too long."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield from self._grow(end)
            line, self._rest = self._rest, bytearray()
            if line and not self._is_told:
                yield line
            self._is_told = False
        yield from self._grow(rest)

    def _grow(self, part: bytes) -> Iterator[Overlong]:
        if self._is_told:
            return
        if len(self._rest) + len(part) <= self._max_bytes:
            self._rest += part
            return
        head = bytes(self._rest[:HEAD_BYTES]) + part[: max(0, HEAD_BYTES - len(self._rest))]
        self._rest, self._is_told = bytearray(), True
        yield Overlong(head, self._max_bytes)


def message_of(body: bytes) -> str:
    """Return what the API server says in a refusal."""
    try:
        return _read_status(body).message[:256] or _NO_REASON
    except BrokenStream:
        return _NO_REASON
