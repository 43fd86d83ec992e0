"""How often each node's topology changes: machines change seldom, and each change makes work for everybody.

Links fall sick, GPUs are cut into slices or plugged in; but a node that publishes another topology all the time is broken, or
lies. It is not read again before it has been still for a while.
"""

from __future__ import annotations

from collections import deque

CHANGES = 6
"""Of one node's topology within the window, that are read; one more closes the node."""
WINDOW_SECONDS = 600.0


class TopologyChanges:
    """The last changes of each node's topology, by its name: a node that is made anew keeps its own."""

    def __init__(self) -> None:
        self._now = 0.0
        self._times: dict[str, deque[float]] = {}
        self._unread: set[str] = set()

    def may_read(self, name: str) -> bool:
        """Take note of a change, and return whether the new topology may be read now."""
        times = self._times.setdefault(name, deque(maxlen=CHANGES + 1))
        times.append(self._now)
        if len(times) > CHANGES:
            self._unread.add(name)
        return name not in self._unread

    def tell(self, now: float) -> list[str]:
        """Take `now` (monotonic seconds) for the time from here on; returns the nodes whose topology may be read after all."""
        self._now = now
        for name, times in [*self._times.items()]:
            while times and now - times[0] > WINDOW_SECONDS:
                times.popleft()
            if not times:
                del self._times[name]
        still = sorted(name for name in self._unread if len(self._times.get(name, ())) <= CHANGES)
        self._unread.difference_update(still)
        return still

    def __len__(self) -> int:
        return len(self._times)
