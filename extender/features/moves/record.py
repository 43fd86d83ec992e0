"""The moves of the last hour, as an annotation of the queue's Lease: they count after a restart, and for the next planner.

A move is recorded before its eviction, in the version of the Lease that was read just before. So a replica counts all moves of
others before it records its own, also where two of them take themselves for the planner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Final

import msgspec

from extender.cluster.objects.kinds import ObjectMeta
from extender.features.moves.limits import MoveLimits, RecordedMove
from extender.kit.clock import Clock, Instant
from extender.kubernetes.lease import path_of_lease
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import MERGE_PATCH, UNREADABLE, Request, Send, managed
from topology.annotations import keys

EVICTS_WITHIN_SECONDS: Final = 30.0
"""After a move has been recorded; it counts from the last of these seconds."""
_MAY_PASS: Final = frozenset({404, 408, 409, 429})
"""The queue is about to create the Lease; it has been written meanwhile; the API server is busy."""

_Row = tuple[Annotated[int, msgspec.Meta(ge=0, le=1 << 40)], str, str, str, str]
"""Seconds since 1970, UID, owner, namespace, and the namespace that it moved for."""


class MoveRecordRefused(Exception):
    """The record cannot be read or written; no pod moves without it."""


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_decode_lease = msgspec.json.Decoder(_Lease).decode
_decode_rows = msgspec.json.Decoder(list[_Row]).decode


def encode(moves: Sequence[RecordedMove], now: Instant) -> str:
    """Return the text of a record."""
    rows: list[_Row] = [
        (ceil(now.wall - now.monotonic + move.at), move.uid, move.owner, move.namespace, move.for_namespace)
        for move in moves
    ]
    return msgspec.json.encode(rows).decode()


def decode(text: str, now: Instant) -> list[RecordedMove]:
    """Return what a record says; what is yet to come counts from the last moment at which it can have been recorded.

    Raises:
        MoveRecordRefused: it is no record.

    """
    try:
        rows = _decode_rows(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MoveRecordRefused(f"annotation {keys.MOVES}: {error}") from None
    latest = now.monotonic + EVICTS_WITHIN_SECONDS
    return [
        RecordedMove(uid, owner, namespace, for_namespace, min(now.monotonic + at - now.wall, latest))
        for at, uid, owner, namespace, for_namespace in rows
    ]


@dataclass(slots=True)
class MoveRecord:
    """The record of one installation."""

    send: Send
    clock: Clock
    limits: MoveLimits
    namespace: str
    name: str
    """Of the Lease."""
    is_read: bool = False
    """Whether it has been read since this replica plans."""
    _version: str = ""

    async def read(self) -> bool:
        """Count what others have recorded; returns whether there was an answer.

        Raises:
            MoveRecordRefused: a right is missing, or the annotation is unreadable.

        """
        metadata, now = await self._ask(Request("GET", self._path)), self.clock()
        if metadata is None:
            return False
        if text := (metadata.annotations or {}).get(keys.MOVES):
            self.limits.learn(decode(text, now), now.monotonic)
        self._version = metadata.resource_version
        self.is_read = True
        return True

    async def write(self) -> bool:
        """Record what counts by now; returns whether it has been recorded, and nobody else has written since it was read.

        Raises:
            MoveRecordRefused: a right is missing.

        """
        now = self.clock()
        annotations = {keys.MOVES: encode(self.limits.to_record(now.monotonic), now)}
        metadata = {"resourceVersion": self._version, "annotations": annotations}
        body = msgspec.json.encode({"metadata": metadata})
        if await self._ask(Request("PATCH", managed(self._path), body, MERGE_PATCH)) is None:
            return False
        self.limits.recorded()
        return True

    async def _ask(self, request: Request) -> ObjectMeta | None:
        """Return the Lease's metadata as answered; `None` where a later attempt may succeed."""
        try:
            status, body = await self.send(request)
        except Unavailable:
            return None
        if status in _MAY_PASS or status >= 500:
            return None
        where = f"Lease {self.namespace}/{self.name}"
        if status >= 300:
            raise MoveRecordRefused(f"{where}: HTTP {status}")
        try:
            return _decode_lease(body).metadata
        except UNREADABLE as error:
            raise MoveRecordRefused(f"{where}: {error}") from None

    @property
    def _path(self) -> str:
        return path_of_lease(self.namespace, self.name)
