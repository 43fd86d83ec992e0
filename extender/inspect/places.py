"""The cluster as a tree: blocks, in them racks, in them NVLink domains, and how many GPUs are free in each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import add
from typing import Final

from extender.cluster.node_view import NodeView
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, node_names
from topology.effort import Search
from topology.request.domains import Level, Location

WIDEST_FIRST: Final = tuple(reversed(Level))
_NOWHERE: Final = Location()
_STEP: Final = 50
"""Nodes that are looked at in less than a millisecond."""
_Sums = tuple[int, ...]
"""Nodes, their GPUs, those of them that are free, and the nodes that are closed."""
_NONE: Final[_Sums] = (0, 0, 0, 0)


class Place(Answer):
    """One block, rack or NVLink domain."""

    level: Level
    name: str | None
    """`None` for the nodes of which nobody knows where they stand."""
    nodes: int
    gpus: int
    free: int
    closed: int
    """Nodes none of whose GPUs is given away, or that are cordoned or tainted."""


def places(state: ClusterState, within: Location = _NOWHERE) -> Search[tuple[Place, ...]]:
    """Search for the places next below `within`, by name; none where nobody has said any. Linear in nodes, some a step."""
    by_location = defaultdict[Location, _Sums](lambda: _NONE)
    names = node_names(state)
    while step := list(islice(names, _STEP)):
        for name in step:
            if view := state.views.get(name):
                location = _location(state, name)
                by_location[location] = _sum(by_location[location], _part(view))
        yield
    return _places({location: sums for location, sums in by_location.items() if _is_inside(location, within)}, within)


def _part(view: NodeView) -> _Sums:
    return 1, len(view.uuids), view.shape.free_gpus.bit_count() if view.is_open else 0, not view.is_open


def _sum(one: _Sums, other: _Sums) -> _Sums:
    return tuple(map(add, one, other))


def _places(inside: Mapping[Location, _Sums], within: Location) -> tuple[Place, ...]:
    for level in _below(within):
        by_domain = defaultdict[str | None, _Sums](lambda: _NONE)
        for location, sums in inside.items():
            domain = location.domain(level)[1]
            by_domain[domain] = _sum(by_domain[domain], sums)
        if by_domain.keys() - {None}:
            ordered = sorted(by_domain.items(), key=lambda item: (item[0] is None, item[0] or ""))
            return tuple(_place(level, name, sums) for name, sums in ordered)
    return ()


def _place(level: Level, name: str | None, sums: _Sums) -> Place:
    nodes, gpus, free, closed = sums
    return Place(level=level, name=name, nodes=nodes, gpus=gpus, free=free, closed=closed)


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
    return all(place is None or place == has for has, place in zip(location, within, strict=True))
