"""Plans the units that wait, in their order: which of them start now and where, and what is kept for the first gang that cannot.

A unit without room does not hold up the others: those behind it are planned on what is left, but for GPUs that are kept.
The work goes in steps. Units that are like one without room are passed over. Of each namespace only so many different units
are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from extender.planning.gangs import Places, place_unit
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.reservations import Reservation, Running, reserve
from extender.planning.units import Assignment, Unit
from topology.effort import Search

FAILURES: Final = 256
"""Different units of one namespace that find no room, in one plan. With more, the namespace loses the places behind them.

A unit counts once for each request that it accepts. Requests that units like it have tried before do not count.
"""
PASSED_OVER_AT_ONCE: Final = 128
"""Units, in one step: about a millisecond."""
RESERVATIONS_TRIED: Final = 8
"""Units of one namespace for which a plan looks for GPUs to keep in vain. Each look goes over all nodes and running pods."""


class Wait(StrEnum):
    """Why a unit does not start now."""

    NO_ROOM = "no-room"
    RESERVED = "reserved"
    """No room but for GPUs that are kept for it."""
    NOT_REACHED = "not-reached"
    """Too many units of its namespace came before it and found no room."""


@dataclass(frozen=True, slots=True)
class Start:
    """A unit that starts now."""

    unit: Unit
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What becomes of all units that wait."""

    starts: tuple[Start, ...] = ()
    """In the order in which they are served."""
    reservation: Reservation | None = None
    waits: Mapping[str, Wait] = field(default_factory=dict)
    """The other units by their keys, in their order."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What a plan rests on besides what nodes have left."""

    now: float
    """In the seconds in which units wait."""
    places: Callable[[Unit], Places] = lambda _: {}
    """Returns the nodes where all but free capacity lets a unit go, and where they stand."""
    running: Callable[[], Sequence[Running]] = lambda: ()
    """Returns what pods hold; called at most once."""
    may_reserve: Callable[[Unit], bool] = lambda unit: unit.is_gang
    """Whether GPUs may be kept for a unit; they are for the first one that has no room."""
    kept: Reservation | None = None
    """What is kept already, for a unit that need not be among those that are planned."""


def plan_units(
    nodes: PlannedNodes,
    units: Iterable[Unit],
    context: PlanContext,
    started: Callable[[Unit], None] = lambda _: None,
) -> Search[QueuePlan]:
    """Return the plan for these units, which are taken one by one; `started` is called for each that starts."""
    starts, waits, reservation = list[Start](), dict[str, Wait](), context.kept
    if reservation is not None:
        yield from nodes.keep(reservation.kept)
    in_vain, tries = _InVain(), Counter[str]()
    for number, unit in enumerate(units):
        if number % PASSED_OVER_AT_ONCE == PASSED_OVER_AT_ONCE - 1:
            yield
        enters = reservation is None or reservation.admits(unit, context.now)
        if in_vain.has(unit.kind, enters=enters):
            waits[unit.key] = Wait.NO_ROOM
            continue
        if in_vain.failures[unit.namespace] >= FAILURES:
            waits[unit.key] = Wait.NOT_REACHED
            continue
        places = context.places(unit) if unit.group else {}
        start = yield from _started(nodes, places, unit, in_vain, enters=enters)
        if start:
            starts.append(start)
            started(start.unit)
            continue
        is_owner = reservation is not None and unit.key == reservation.owner
        waits[unit.key] = Wait.RESERVED if is_owner else Wait.NO_ROOM
        is_tried = reservation is None and tries[unit.namespace] < RESERVATIONS_TRIED
        if is_tried and context.may_reserve(unit):
            tries[unit.namespace] += 1
            reservation = yield from reserve(nodes, context.places(unit), unit, context.running())
            if reservation is not None:
                waits[unit.key] = Wait.RESERVED
                yield from nodes.keep(reservation.kept)
                continue
        in_vain.add(unit.kind, enters=enters)
        yield
    return QueuePlan(tuple(starts), reservation, waits)


@dataclass(slots=True)
class _InVain:
    """Kinds of units that have found no room in a plan. Room only shrinks, so more units of such a kind find none, either."""

    failures: Counter[str] = field(default_factory=Counter)
    """By namespace."""
    _kinds: dict[Hashable, bool] = field(default_factory=dict)
    """Kind → whether its units had no room although they might have had GPUs that are kept."""

    def has(self, kind: Hashable | None, *, enters: bool) -> bool:
        could_enter = None if kind is None else self._kinds.get(kind)
        return could_enter is not None and (could_enter or not enters)

    def add(self, kind: Hashable | None, *, enters: bool) -> None:
        if kind is not None:
            self._kinds[kind] = enters or self._kinds.get(kind, False)


def _started(
    nodes: PlannedNodes, places: Places, unit: Unit, in_vain: _InVain, *, enters: bool
) -> Search[Start | None]:
    """Give a unit the places of the first request for which there is room."""
    for way in unit.ways():
        if in_vain.has(way.kind_of_way, enters=enters):
            continue
        assignments = yield from place_unit(nodes, places, way, enters=enters)
        if assignments:
            return Start(way, assignments)
        in_vain.failures[unit.namespace] += 1
        in_vain.add(way.kind_of_way, enters=enters)
    return None
