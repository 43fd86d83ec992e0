"""Reads the events of one pod for its page, as `kubectl describe` does, and not more often than the API server can take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import msgspec

from extender.inspect.pod_story import EventLine
from extender.kit.rate import Rate
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send

SHOWN: Final = 50
PER_SECOND: Final = 5.0
AT_ONCE: Final = 2
"""Lists under way, however slow the API server is. Binds have the other connections to it."""
MAX_CHARACTERS: Final = 1024
"""Of a message that is shown."""


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 1
    last_observed_time: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    @property
    def line(self) -> EventLine:
        """The event as a page shows it."""
        at = (self.series and self.series.last_observed_time) or self.last_timestamp or self.event_time or ""
        count = (self.series and self.series.count) or self.count or 1
        return EventLine(f"{at[:19]}Z" if at else "", self.type, self.reason, self.message[:MAX_CHARACTERS], count)


class _EventList(msgspec.Struct, frozen=True):
    items: list[_Event] = []


@dataclass(slots=True)
class PodEvents:
    """The events of single pods."""

    send: Send
    now: Callable[[], float]
    """Returns monotonic seconds."""
    _rate: Rate = field(default_factory=lambda: Rate(PER_SECOND, int(4 * PER_SECOND)))
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def of(self, namespace: str, uid: str) -> Sequence[EventLine] | None:
        """Return a pod's events, the newest first; `None` where they cannot be read now."""
        if self._slots.locked() or not self._rate.take(self.now()):
            return None
        query = f"fieldSelector={quote(f'involvedObject.uid={uid}', safe='')}&limit={SHOWN}"
        try:
            async with self._slots:
                status, body = await self.send(
                    Request("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}/events?{query}")
                )
            if status != 200:
                return None
            events = msgspec.json.decode(body, type=_EventList).items
        except (Unavailable, msgspec.MsgspecError):
            return None
        return sorted((event.line for event in events[:SHOWN]), key=lambda event: event.at, reverse=True)
