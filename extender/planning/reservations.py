"""Keeps GPUs for the first gang that has no room, so that smaller pods do not pass it by for ever.

The gang gets the GPUs on which it can start soonest, as far as pods say how long they run. Of pods that do not say so, those
count first that hold the fewest GPUs of what the gang needs. A pod may have kept GPUs only if it ends before the gang starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import Final

from extender.cluster.candidates.holds import NOTHING, Held
from extender.planning.gangs import Places, place_unit
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.units import Assignment, Unit
from topology.effort import Search
from topology.request.domains import Domain

ADDED_AT_ONCE: Final = 1024
"""Pods, in one step: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a pod holds, and will give back."""

    node: str
    held: Held
    """Only what may be given away again."""
    ends_at: float | None
    """In the seconds in which units wait; `None`: nobody knows."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs that are kept for a unit until it can start."""

    owner: str
    """The unit's key."""
    namespace: str
    """The unit's."""
    assignments: tuple[Assignment, ...]
    """Where its members are to go."""
    ready_at: float | None
    """When all of the GPUs will be free; `None`: nobody knows."""

    @property
    def kept(self) -> dict[str, Held]:
        """Node → what is kept there."""
        kept = dict[str, Held]()
        for assignment in self.assignments:
            kept[assignment.node] = kept.get(assignment.node, NOTHING) + assignment.held
        return kept

    def admits(self, unit: Unit, now: float) -> bool:
        """Whether a unit that starts now delays the owner in no case."""
        if unit.key == self.owner:
            return True
        return (
            unit.expected_seconds is not None
            and self.ready_at is not None
            and now + unit.expected_seconds <= self.ready_at
        )


def reserve(nodes: PlannedNodes, places: Places, unit: Unit, running: Sequence[Running]) -> Search[Reservation | None]:
    """Return what to keep for a unit that has no room now; `None` where it would have none if all pods ended.

    The least number of pods have to end, in the order in which they are expected to. Finding it takes a search for each
    doubling of their number.
    """
    ending = yield from _in_order(unit, places, running)
    soonest: tuple[int, tuple[Assignment, ...]] | None = None
    low, high = 0, len(ending)
    while low <= high:
        middle = high if soonest is None else (low + high) // 2
        given_back = yield from _given_back(islice(ending, middle))
        later = yield from nodes.later(given_back)
        assignments = yield from place_unit(later, places, unit, enters=True)
        if assignments:
            soonest, high = (middle, assignments), middle - 1
        elif soonest is None:
            return None
        else:
            low = middle + 1
    assert soonest is not None, "the first try has found a place, or returned"
    count, assignments = soonest
    ready_at = max((inf if pod.ends_at is None else pod.ends_at for pod in ending[:count]), default=None)
    return Reservation(unit.key, unit.namespace, assignments, None if ready_at == inf else ready_at)


def _in_order(unit: Unit, places: Places, running: Sequence[Running]) -> Search[list[Running]]:
    """Return the pods on a unit's nodes: first those whose end is known, then by what their domain and their node give back."""
    level = unit.group.level if unit.group and unit.group.required else None
    expected, unknown = list[Running](), dict[str, list[Running]]()
    by_node, by_domain = Counter[str](), Counter[Domain | None]()
    for number, pod in enumerate(running):
        if number % ADDED_AT_ONCE == ADDED_AT_ONCE - 1:
            yield
        if pod.node not in places:
            continue
        if pod.ends_at is not None:
            expected.append(pod)
            continue
        gpus = pod.held.touched.bit_count()
        unknown.setdefault(pod.node, []).append(pod)
        by_node[pod.node] += gpus
        by_domain[places[pod.node].domain(level) if level else None] += gpus
    yield

    def cost(node: str) -> tuple[int, str, int, str]:
        domain = places[node].domain(level) if level else None
        return by_domain[domain], str(domain), by_node[node], node

    nodes = sorted(unknown, key=cost)  # a sort of all pods would be one long step
    yield
    expected.sort(key=lambda pod: (pod.ends_at, pod.node))
    yield
    return [*expected, *chain.from_iterable(unknown[node] for node in nodes)]


def _given_back(running: Iterable[Running]) -> Search[Mapping[str, Held]]:
    """Add up what these pods hold, by node."""
    given_back = dict[str, Held]()
    for number, pod in enumerate(running):
        if number % ADDED_AT_ONCE == ADDED_AT_ONCE - 1:
            yield
        given_back[pod.node] = given_back.get(pod.node, NOTHING) + pod.held
    return given_back
