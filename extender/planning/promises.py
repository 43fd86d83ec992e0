"""Places that are promised to pods of the queue while other pods leave them: what is held, and what became of it. No I/O.

What is held stands in memory, yields to no pod, and expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

from extender.cluster.candidates.holds import Hold, Ranked
from extender.cluster.state import ClusterState
from extender.planning.units import Assignment


class PromiseEnd(StrEnum):
    """What became of the places of a pod, or of a gang."""

    SERVED = "served"
    """All of its pods have them."""
    ELSEWHERE = "elsewhere"
    """One of them has another place."""
    GONE = "gone"
    """One of them is gone."""
    DEADLINE = "deadline"
    """The others have not left in time."""
    CHANGED = "changed"
    """One of them, its place, or a pod that was to leave is not what it was."""
    REFUSED = "refused"
    """A pod may not be evicted: a budget, a policy or a missing right."""
    STOOD_BY = "stood-by"
    """Another replica plans now."""


def firm_hold(place: Assignment, expires: float) -> Hold:
    """Return what keeps a place from all other pods until then, in monotonic seconds."""
    ranked = (Ranked(place.node, place.placement),)
    return replace(Hold.of(place.node, place.placement, place.request, expires, ranked), is_firm=True)


def promise(state: ClusterState, places: Iterable[Assignment], deadline: float) -> None:
    """Hold the places for their pods until then."""
    for place in places:
        state.holds.put(place.pod.metadata.uid, firm_hold(place, deadline))


def take_back(state: ClusterState, places: Iterable[Assignment], now: float) -> None:
    """Hold these places no more, unless their pods have others by now."""
    for place in places:
        if _is_held(state, place, now):
            state.holds.release(place.pod.metadata.uid)


def fate(state: ClusterState, places: Sequence[Assignment], deadline: float, now: float) -> PromiseEnd | None:
    """Return what became of the places, `None` while they are held."""
    ends = {_fate_of(state, place, now) for place in places}
    for end in (PromiseEnd.GONE, PromiseEnd.ELSEWHERE):
        if end in ends:
            return end
    if ends == {PromiseEnd.SERVED}:
        return PromiseEnd.SERVED
    if now >= deadline:
        return PromiseEnd.DEADLINE
    return PromiseEnd.CHANGED if PromiseEnd.CHANGED in ends else None


def _fate_of(state: ClusterState, place: Assignment, now: float) -> PromiseEnd | None:
    pod = state.pods.get(place.pod.metadata.uid)
    if pod is None or not pod.is_alive:
        return PromiseEnd.GONE
    if nodes := {pod.node or pod.directed_to} - {None} or {*state.claimed_on(pod.uid)}:
        return PromiseEnd.SERVED if nodes == {place.node} else PromiseEnd.ELSEWHERE
    return None if pod.awaits_plan and _is_held(state, place, now) else PromiseEnd.CHANGED


def _is_held(state: ClusterState, place: Assignment, now: float) -> bool:
    return state.holds.of(place.pod.metadata.uid, place.node, now) == place.held
