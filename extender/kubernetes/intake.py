"""Read one event of a watch for a reflector, and hand on to the sink what is kept of its object.

An object that cannot be read does not stop the others: it is named, counted and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.objects.versions import Listing
from extender.kit.turns import in_short_turns
from extender.kubernetes.documents import (
    GONE,
    Bookmark,
    BrokenStream,
    Deleted,
    Event,
    Expired,
    Object,
    Overlong,
    Text,
    Unread,
    WatchError,
    decoder,
    event_decoder,
    measured,
    name_changed,
    newer_version,
)
from extender.kubernetes.oversized_objects import OversizedObjects
from extender.kubernetes.sink import Sink, StepwiseSink


class Intake(Generic[Object]):
    """Reads the objects of one kind for one sink; its arguments are those of `Reflector`."""

    def __init__(
        self,
        kind: type[Object],
        sink: Sink[Object],
        keep: Callable[[Object], Object | None],
        knows: Callable[[ObjectMeta], bool],
        oversized: OversizedObjects,
    ) -> None:
        self.decode: Callable[[Text], Object] = decoder(kind)
        self.keep: Callable[[Object], Object | None] = keep
        self.oversized = oversized
        self._decode_event: Callable[[Text], Event[Object]] = event_decoder(kind)
        self._sink: Sink[Object] = sink
        self._knows = knows

    async def replace(self, objects: Sequence[Object], listing: Listing) -> None:
        """Hand on a whole list; others have their turns meanwhile where the sink takes it in steps."""
        if isinstance(self._sink, StepwiseSink):
            await in_short_turns(self._sink.replacing(objects, listing))
        else:
            self._sink.replaced(objects, listing)

    def take(self, line: Text | Overlong) -> str:
        """Hand on what a line of a watch says; returns the version that has been heard by then.

        Raises `Expired` where the line says so, and `BrokenStream` for one that names no object and no version.
        """
        version = self._take_overlong(line) if isinstance(line, Overlong) else self._take_event(line)
        if not version:
            raise BrokenStream("an event without a version")
        return version

    def _take_event(self, line: Text) -> str:
        if (metadata := newer_version(line)) is not None and self._knows(metadata):
            return metadata.resource_version
        try:
            event = self._decode_event(line)
        except BrokenStream as error:
            if (unread := name_changed(line, str(error))) is None:
                raise
            return self._pass_over(unread)
        match event:
            case WatchError(object=status) if status.code == GONE:
                raise Expired
            case WatchError(object=status):
                raise BrokenStream(f"server error {status.code}: {status.message}")
            case Bookmark(object=mark):
                return mark.metadata.resource_version
        item: Object = measured(event.object, line)
        if not item.metadata.resource_version:
            return ""
        self.oversized.weigh(item.metadata, len(line))
        if (kept := self.keep(item)) is not None:
            (self._sink.deleted if isinstance(event, Deleted) else self._sink.changed)(kept)
        return item.metadata.resource_version

    def _take_overlong(self, line: Overlong) -> str:
        reason = f"a line of more than {line.max_bytes} bytes"
        if (unread := name_changed(line.head, reason)) is None:
            raise BrokenStream(reason)
        return self._pass_over(unread)

    def _pass_over(self, unread: Unread) -> str:
        self.oversized.pass_over(unread)
        self._sink.unread(unread.metadata, gone=unread.change == "DELETED")
        return unread.metadata.resource_version
