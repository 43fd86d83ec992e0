"""The nodes once pods have left, and whether a plan that rests on that still holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.cluster.candidates.holds import NOTHING, Held
from extender.planning.planned_nodes import NO_DEMAND, HostDemand, PlannedNodes
from extender.planning.units import Assignment
from topology.effort import Search

ADDED_AT_ONCE: Final = 1024
"""Pods, in one step: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a pod that moves is about to give back."""

    node: str
    held: Held
    demand: HostDemand


def still_fits(nodes: PlannedNodes, places: Sequence[Assignment], leaving: Iterable[Leaving]) -> Search[bool]:
    """Return whether the rest of a plan still gives all of its pods what it promised them.

    Args:
        nodes: As they are, and as all that is planned will make them, without what is held for this plan.
        places: What the plan has promised, and nobody has taken yet.
        leaving: What pods of the plan will give back, as of this moment.

    """
    later = yield from after(nodes, leaving)
    for place in places:
        if not later.place_on(place.pod, place.request, place.node, place.held):
            return False
        yield
    return True


def after(nodes: PlannedNodes, leaving: Iterable[Leaving]) -> Search[PlannedNodes]:
    """Return the nodes as they will be once these pods have left."""
    given_back, released = dict[str, Held](), dict[str, HostDemand]()
    for number, pod in enumerate(leaving):
        if number % ADDED_AT_ONCE == ADDED_AT_ONCE - 1:
            yield
        given_back[pod.node] = given_back.get(pod.node, NOTHING) + pod.held
        released[pod.node] = released.get(pod.node, NO_DEMAND) + pod.demand
    return (yield from nodes.later(given_back, released))
