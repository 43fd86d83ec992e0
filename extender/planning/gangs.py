"""Places a whole unit, or nothing of it: in the domain that suits the gang best, and there each pod on its best GPUs.

A gang of equal pods that requires a domain is placed in the domain that `topology.placement.group` prefers of those with
room. Room is counted by GPUs alone. Where CPU, memory, or pods of different sizes do not fit in spite of it, the next domain
is tried, at most `DOMAINS_TRIED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from extender.cluster.candidates.groups import fitting_for
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.units import Assignment, PendingPod, Unit
from topology.effort import Search
from topology.placement.group import Progress, narrow
from topology.placement.verdict import Rejection
from topology.request.domains import Domain, GroupRequest, Location
from topology.request.gpu_request import GpuRequest

DOMAINS_TRIED: Final = 16

Places = Mapping[str, Location]
"""Node → where it stands, for all nodes where a unit may go."""


def place_unit(nodes: PlannedNodes, places: Places, unit: Unit, *, enters: bool) -> Search[tuple[Assignment, ...]]:
    """Take the GPUs of all members, or of an elastic gang of as many as fit; nothing is taken where they are too few.

    Args:
        nodes: What is left of them.
        places: Where they stand.
        unit: What is to be placed.
        enters: Whether it may have GPUs that are kept for another unit.

    Returns:
        Where each member goes, the largest first; empty where there is no room for the unit.

    """
    if unit.group is None:
        return (yield from _place_anywhere(nodes, unit, enters=enters))
    domain, excluded = unit.group.level, set[Domain]()
    for _ in range(DOMAINS_TRIED):
        mark, attempt = nodes.mark(), _Attempt(nodes, unit, unit.group, enters=enters)
        there = {name: place for name, place in places.items() if place.domain(domain) not in excluded}
        yield from attempt.run(there)
        if len(attempt.assignments) >= unit.needed:
            return tuple(attempt.assignments)
        yield from nodes.undo(mark)
        tried = {places[assignment.node].domain(domain) for assignment in attempt.assignments} | attempt.full
        if not unit.group.required or not tried - excluded:
            break
        excluded |= tried
    return ()


def has_room(nodes: PlannedNodes, places_of: Callable[[Unit], Places], unit: Unit) -> Search[bool]:
    """Return whether a unit fits as things are, by any of its requests."""
    for way in unit.ways():
        if (yield from place_unit(nodes, places_of(way), way, enters=True)):
            return True
    return False


def _place_anywhere(nodes: PlannedNodes, unit: Unit, *, enters: bool) -> Search[tuple[Assignment, ...]]:
    mark, assignments, left = nodes.mark(), list[Assignment](), len(unit.members)
    for member in _largest_first(unit):
        place = yield from nodes.place(member.pod, member.request, member.avoided, enters=enters)
        left -= 1
        if place is not None:
            assignments.append(Assignment(member.pod, member.request, *place))
        elif len(assignments) + left < unit.needed:
            break
        yield
    if len(assignments) >= unit.needed:
        return tuple(assignments)
    yield from nodes.undo(mark)
    return ()


class _Attempt:
    """One way to place a gang: domain after domain, as many members as fit in each."""

    def __init__(self, nodes: PlannedNodes, unit: Unit, group: GroupRequest, *, enters: bool) -> None:
        self.assignments: list[Assignment] = []
        self.full: set[Domain] = set()
        """Domains of the group's level that had room by count, and took no pod."""
        self._nodes, self._unit, self._group, self._enters = nodes, unit, group, enters

    def run(self, places: dict[str, Location]) -> Search[None]:
        """Place what fits."""
        rest, placed = _largest_first(self._unit), [*self._unit.placed]
        by_location = dict[Location, list[str]]()
        for name, location in places.items():
            by_location.setdefault(location, []).append(name)
        while rest and by_location:
            yield from self._nodes.prepare(rest[0].request, enters=self._enters, counts=True)
            allowed = self._next_locations(rest, placed, by_location, places)
            yield
            if not allowed:
                return
            names = frozenset(name for location in allowed for name in by_location[location])
            left = yield from self._fill(rest, names, placed, places)
            if len(left) == len(rest):
                self.full |= {location.domain(self._group.level) for location in allowed}
                for location in allowed:
                    del by_location[location]
            rest = left

    def _next_locations(
        self, rest: list[PendingPod], placed: list[Location], by_location: Mapping[Location, list[str]], places: Places
    ) -> frozenset[Location]:
        """Return where the next members go. Pods of several sizes count as fewer that are as large as the first."""
        names = frozenset(name for of_location in by_location.values() for name in of_location)
        head = rest[0]

        def fitting(request: GpuRequest) -> Mapping[Location, int]:
            namespace = head.pod.metadata.namespace
            return self._nodes.fitting(request, namespace, names, places, enters=self._enters)

        as_large = -(-sum(member.gpus for member in rest) // max(1, head.gpus))
        room = fitting_for(head.request, as_large, fitting)
        answer = narrow(self._group, Progress(as_large, tuple(placed)), room, {})
        return frozenset() if isinstance(answer, Rejection) else answer

    def _fill(
        self, rest: list[PendingPod], names: frozenset[str], placed: list[Location], places: Places
    ) -> Search[list[PendingPod]]:
        """Place members on these nodes until one finds no room; returns the others."""
        for number, member in enumerate(rest):
            place = yield from self._nodes.place(
                member.pod, member.request, member.avoided, among=names, enters=self._enters
            )
            yield
            if place is None:
                return rest[number:]
            self.assignments.append(Assignment(member.pod, member.request, *place))
            if (location := places[place[0]]) not in placed:
                placed.append(location)
        return []


def _largest_first(unit: Unit) -> list[PendingPod]:
    return sorted(unit.members, key=lambda member: (-member.gpus, -sum(member.request.memory_gib)))
