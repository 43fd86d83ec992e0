"""What a replica remembers of the past, for people: its last decisions, and the room of the last day."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.inspect.decisions import Decisions
from extender.inspect.room_over_time import RoomHistory


@dataclass(frozen=True, slots=True)
class History:
    """It is empty until a feature writes to it."""

    decisions: Decisions = field(default_factory=Decisions)
    room: RoomHistory = field(default_factory=RoomHistory)
    """How many pods of each size fitted, minute by minute."""
