"""What wakes the agent's loop between two discoveries: something has changed, or it is to end."""

from __future__ import annotations

from threading import Event


class News:
    """Set from signal handlers and from other threads."""

    def __init__(self) -> None:
        self._wake = Event()
        self.stopped = False
        self.discovery_wanted = False
        """The next discovery is to come soon; who makes it puts this back."""

    def changed(self) -> None:
        """Have the loop publish."""
        self._wake.set()

    def discover(self) -> None:
        """Have the loop make a discovery."""
        self.discovery_wanted = True
        self._wake.set()

    def stop(self) -> None:
        """Have the loop end."""
        self.stopped = True
        self._wake.set()

    def wait(self, seconds: float) -> bool:
        """Wait for news, but not longer; returns whether there is any."""
        woken = self._wake.wait(seconds)
        self._wake.clear()
        return woken
