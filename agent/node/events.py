"""Kubernetes Events on our own Node, posted beside the agent's work: whoever says something waits for nothing.

As the field does it: one that is said again while it is remembered is counted on, not posted anew. What the API server does not
take in a few tries is lost, and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from queue import Empty, Full, Queue
from threading import Event as Flag
from threading import Thread
from typing import Any, Final, Literal, Protocol
from uuid import uuid4

import structlog

from agent.errors import ApiError
from extender.kit.bounded import Bounded

REPORTER: Final = "gputopo-agent"
NAMESPACE: Final = "default"
"""Where events about nodes are."""
_MAX_NOTE_CHARACTERS: Final = 1000
_QUEUE: Final = 256
_REMEMBERED: Final = 256
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 10.0
"""Between two tries."""
_GONE: Final = 404
_IS_THERE: Final = 409

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One sentence about our node."""

    reason: str
    note: str
    type: Literal["Normal", "Warning"]


class EventPort(Protocol):
    """Events of the node's namespace; both raise `ApiError`."""

    def post_event(self, body: dict[str, Any]) -> None:
        """Create an event; what it is about, the port knows."""
        ...

    def count_event(self, name: str, fields: dict[str, Any]) -> None:
        """Set these fields of an event that is there."""
        ...


@dataclass(frozen=True, slots=True)
class _Posted:
    name: str
    count: int = 1


class NodeEvents:
    """Posts what it is told, from `start` to `close`, on a thread of its own.

    Args:
        node: the node's name.
        port: where events go.
        now: the time of day.
        counted: hears of each event that it was posted, or lost.
        pause_seconds: between two tries.

    """

    def __init__(
        self,
        node: str,
        port: EventPort,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        counted: Callable[[str], None] = lambda result: None,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._node = node
        self._port = port
        self._now = now
        self._counted = counted
        self._pause_seconds = pause_seconds
        self._queue: Queue[tuple[NodeEvent, datetime, str]] = Queue(_QUEUE)
        self._posted = Bounded[NodeEvent, _Posted](_REMEMBERED)
        self._closing = Flag()

    def say(self, event: NodeEvent) -> None:
        """Have an event posted; never waits, never raises.

        In a full queue the oldest one makes room, as the newest says what holds.
        """
        item = event, self._now(), f"{self._node[:200].rstrip('-.')}.{uuid4().hex[:16]}"
        while True:
            with suppress(Full):
                return self._queue.put_nowait(item)
            with suppress(Empty):
                self._queue.get_nowait()
                self._counted("lost")

    def start(self) -> None:
        """Begin; the thread is not waited for in the end, as the API server may say nothing for a while."""
        Thread(target=self._run, name="node-events", daemon=True).start()

    def close(self) -> None:
        """Post nothing any more."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._counted("posted" if self._post(*self._queue.get()) else "lost")

    def _post(self, event: NodeEvent, at: datetime, name: str) -> bool:
        for _ in range(_TRIES):
            try:
                self._post_once(event, at, name)
            except ApiError as error:
                log.warning("an event could not be posted", reason=event.reason, why=str(error))
                if not _may_pass(error) or self._closing.wait(self._pause_seconds):
                    return False
            else:
                return True
        return False

    def _post_once(self, event: NodeEvent, at: datetime, name: str) -> None:
        if posted := self._posted.get(event):
            again = replace(posted, count=posted.count + 1)
            try:
                self._port.count_event(posted.name, {"count": again.count, "lastTimestamp": _stamp(at)})
            except ApiError as error:
                if error.status != _GONE:
                    raise
            else:
                self._posted.put(event, again)
                return
        try:
            self._port.post_event(_body(event, name, at))
        except ApiError as error:
            if error.status != _IS_THERE:  # of our own try before, whose answer was lost
                raise
        self._posted.put(event, _Posted(name))


def _may_pass(error: ApiError) -> bool:
    """Whether the same may be taken later: nobody answered, or somebody was busy."""
    return error.status in {0, 429} or error.status >= 500


def _body(event: NodeEvent, name: str, at: datetime) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "type": event.type,
        "reason": event.reason,
        "message": event.note[:_MAX_NOTE_CHARACTERS],
        "firstTimestamp": _stamp(at),
        "lastTimestamp": _stamp(at),
        "count": 1,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "reportingInstance": REPORTER,
    }


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
