"""Hears of every version of our own Node: an extender that asks for a look is answered at once, and its ledger is known early.

A report names the version of the node that was heard of before its look began. So whoever reads it knows that the look began
after that version was written, whatever was slow on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event, Thread

import structlog

from agent.errors import ApiError
from extender.kit.backoff import Pauses
from topology.annotations.records import is_later

log = structlog.get_logger()

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 120.0


@dataclass(frozen=True, slots=True)
class NodeVersion:
    """What matters to us of one version of our node."""

    resource_version: str
    look: str = ""
    """The version that a look has to be later than; empty when nobody asks."""
    ledger: str | None = None
    """As it is written; `None` where there is none."""
    gpu_health: str = ""
    """What people say of the GPUs, as it is written."""
    paused: str = ""
    """Why the driver is to be left alone for now; empty where it is not."""

    def asks(self, answered: str) -> bool:
        """Whether a look is asked for that a report about version `answered` is no answer to."""
        return is_later(self.resource_version, self.look) and not is_later(answered, self.look)


class NodeWatch:
    """Runs from `start` to `close`, on a thread of its own.

    Args:
        follow: Yields the node's versions, and ends now and then; raises `ApiError`.
        heard: Is told each version that is later than the one before; another server may be behind.
        changed: Is called after that.
        random: Gives numbers in 0..1, so that not all nodes come back at once.

    """

    def __init__(
        self,
        follow: Callable[[], Iterator[NodeVersion]],
        heard: Callable[[NodeVersion], None],
        changed: Callable[[], None],
        random: Callable[[], float],
    ) -> None:
        self._follow = follow
        self._heard = heard
        self._changed = changed
        self._pauses = Pauses(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, random=random)
        self._closing, self._told = Event(), Event()
        self._newest = "0"

    def start(self) -> None:
        """Start listening; the thread is not waited for in the end, as the API server may say nothing for a while."""
        Thread(target=self._run, name="node-watch", daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Return when the first version has been told, or after so long."""
        self._told.wait(seconds)

    def close(self) -> None:
        """Tell nobody anything any more."""
        self._closing.set()

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            failures = 0 if self._listen() else failures + 1
            self._closing.wait(self._pauses.after(failures + 1))

    def _listen(self) -> bool:
        """Tell what one watch tells; returns whether it told anything."""
        is_connected = False
        try:
            for version in self._follow():
                if self._closing.is_set():
                    break
                is_connected = True
                if is_later(version.resource_version, self._newest):
                    self._newest = version.resource_version
                    self._heard(version)
                    self._changed()
                    self._told.set()
        except ApiError as error:
            log.warning("cannot watch the node", reason=str(error))
        return is_connected
