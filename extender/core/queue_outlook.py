"""What the queue of this replica says to other features; they know it by this class alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from extender.cluster.candidates.holds import Held


@dataclass(slots=True)
class QueueOutlook:
    """The queue as of its last plan; nothing where there is none, or where another replica plans."""

    is_here: Callable[[], bool] = lambda: False
    """Whether this replica plans."""
    without_room: Callable[[], Iterable[str]] = lambda: ()
    """Returns the UIDs of the pods without room, in the order in which they are served."""
    kept: Callable[[], Mapping[str, Held]] = dict
    """Returns node → what is kept for a gang."""
