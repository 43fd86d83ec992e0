"""The cluster as a tree: blocks, in them racks, in them NVLink domains, and how many GPUs are free in each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from extender.cluster.node_view import NodeView
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, node_names
from topology.request.domains import Level, Location

WIDEST_FIRST: Final = tuple(reversed(Level))
_NOWHERE: Final = Location()
_STEP: Final = 500
"""Nodes that are looked at in about a millisecond."""


class Place(Answer):
    """One block, rack or NVLink domain."""

    level: Level
    name: str | None
    """`None` for the nodes of which nobody knows where they stand."""
    nodes: int
    gpus: int
    free: int
    closed: int
    """Nodes none of whose GPUs is given away."""


def places(state: ClusterState, within: Location = _NOWHERE) -> tuple[Place, ...]:
    """Return the places next below `within`, by name; none where nobody has said any. Linear in nodes."""
    *_, found = places_in_steps(state, within)
    return found


def places_in_steps(state: ClusterState, within: Location = _NOWHERE) -> Iterator[tuple[Place, ...]]:
    """Yield nothing of worth while nodes are looked at, some hundred a step, and at last the places."""
    everywhere = defaultdict[Location, list[NodeView]](list)
    names = list(node_names(state))
    for start in range(0, len(names), _STEP):
        yield ()
        for name in names[start : start + _STEP]:
            if view := state.views.get(name):
                everywhere[_location(state, name)].append(view)
    inside = {location: views for location, views in everywhere.items() if _is_inside(location, within)}
    yield _places(inside, within)


def _places(inside: Mapping[Location, list[NodeView]], within: Location) -> tuple[Place, ...]:
    for level in _below(within):
        found = defaultdict[str | None, list[NodeView]](list)
        for location, views in inside.items():
            found[location.domain(level)[1]] += views
        if found.keys() - {None}:
            ordered = sorted(found.items(), key=lambda item: (item[0] is None, item[0] or ""))
            return tuple(_place(level, name, views) for name, views in ordered)
    return ()


def node_names_in(state: ClusterState, within: Location, containing: str = "", after: str = "") -> Iterator[str]:
    """Yield the names of the nodes with GPUs inside a place, in order."""
    return (name for name in node_names(state, containing, after) if _is_inside(_location(state, name), within))


def _below(within: Location) -> tuple[Level, ...]:
    """Return the levels that are narrower than all that `within` names."""
    named = [depth for depth, level in enumerate(WIDEST_FIRST) if within.domain(level)[1] is not None]
    return WIDEST_FIRST[max(named, default=-1) + 1 :]


def _location(state: ClusterState, name: str) -> Location:
    return state.nodes.locations.get(name, _NOWHERE)


def _is_inside(location: Location, within: Location) -> bool:
    return all(wanted is None or wanted == has for has, wanted in zip(location, within, strict=True))


def _place(level: Level, name: str | None, views: list[NodeView]) -> Place:
    open_ones = [view for view in views if view.shape.closed is None]
    return Place(
        level=level,
        name=name,
        nodes=len(views),
        gpus=sum(len(view.uuids) for view in views),
        free=sum(view.shape.free_gpus.bit_count() for view in open_ones),
        closed=len(views) - len(open_ones),
    )
