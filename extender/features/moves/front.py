"""What the front page shows of moves: the plans that are carried out, and how much of the limits is used. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from extender.features.moves.course import RoomPlan
from extender.features.moves.events import minutes
from extender.features.moves.limits import MoveLimits
from extender.inspect.front_tables import FrontRow, FrontTable

COLUMNS: Final = ("For", "Node", "Pods that move", "Cost", "Gain at most", "Moves for its namespace in the last hour")


def front_table(plans: Iterable[RoomPlan], limits: MoveLimits, now: float) -> FrontTable | None:
    """Return the table as of `now`, in monotonic seconds; `None` where no pod moves, and none has moved in the last hour."""
    rows = tuple(_row(plan, limits, now) for plan in plans)
    count = limits.moved_lately(now)
    if not (rows or count):
        return None
    line = f"{count} of {limits.settings.per_hour} moves in the last hour"
    return FrontTable(title="Moves", columns=COLUMNS, rows=rows, line=line)


def _row(room: RoomPlan, limits: MoveLimits, now: float) -> FrontRow:
    members = len(room.plan.targets)
    cells = (
        ", ".join(room.plan.nodes) + (f", for {members} pods of its gang" if members > 1 else ""),
        "; ".join(_moves(room)),
        minutes(room.plan.cost_gpu_seconds),
        minutes(room.gain_gpu_seconds),
        f"{limits.moved_lately(now, room.first.namespace)} of {limits.settings.namespace_per_hour}",
    )
    return FrontRow(pod=room.name, cells=cells)


def _moves(room: RoomPlan) -> Iterable[str]:
    for moved, place in room.plan.moves:
        metadata = moved.wanted.pod.metadata
        state = "evicted" if moved.uid in room.evicted else "not evicted yet"
        yield f"{metadata.namespace}/{metadata.name} to {place.node} ({state})"
