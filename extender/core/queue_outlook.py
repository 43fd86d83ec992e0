"""What the queue of this replica says to other features; they know it by this class alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from extender.cluster.candidates.holds import Held
from extender.planning.units import Unit
from topology.effort import Search


@dataclass(slots=True)
class QueueOutlook:
    """The queue as of its last plan; nothing where there is none, or where another replica plans."""

    is_here: Callable[[], bool] = lambda: False
    """Whether this replica plans."""
    without_room: Callable[[], Iterable[str]] = lambda: ()
    """Returns the UIDs of the pods without room, in the order in which they are served."""
    gang_of: Callable[[str], Unit | None] = lambda _: None
    """Returns the gang of a pod without room, by the pod's UID; `None` of a single pod."""
    read_again: Callable[[Unit], Search[Unit | None]] = lambda _: _none()
    """Returns a unit as it is now; `None` where it cannot be planned any more, as where a gang is incomplete."""
    kept: Callable[[str], Mapping[str, Held]] = lambda _: {}
    """Returns node → what is kept for a gang, unless that is the one with this key."""


def _none() -> Search[Unit | None]:
    yield from ()
    return None
