"""What must not be made of the queue's plans and evictions, put into the product."""

from __future__ import annotations

from typing import Any

from extender.features.queue.endings import Cause, Ending
from extender.features.queue.half_gangs import HalfGang
from tests.simulation.mix import queued, torn
from tests.simulation.mutants import seams
from tests.simulation.mutants.mutant import Mutant


async def evict_nobody(*_: Any) -> None:
    """Let half gangs stay."""


def all_members(gang: HalfGang) -> list[Ending]:
    """End those that wait behind their gates as well."""
    return [Ending(pod, Cause.HALF_GANG, "") for pod in (*gang.unbound, *gang.bound)]


QUEUE = (
    Mutant(
        "gates are opened before claims are written",
        "found here",
        ("GATE", "GANG"),
        {seams.IS_CLAIMED: lambda *_: True},
        queued,
    ),
    Mutant("half gangs do not end", "found here", ("HALF",), {seams.EVICT: evict_nobody}, torn),
    Mutant(
        "gated members are evicted, too",
        "found here",
        ("EVICT",),
        {seams.MEMBERS_TO_END: all_members, seams.OBSTACLE: None},
        torn,
    ),
    Mutant("pods without a controller are evicted", "found here", ("EVICT",), {seams.OBSTACLE: None}, torn, seed=2),
    Mutant(
        "a gang is ended while its plan is carried out",
        "found here",
        ("EVICT",),
        {seams.HALF_PATIENCE: 0.0, seams.UNDER_WAY: lambda _: frozenset()},
        torn,
    ),
)
