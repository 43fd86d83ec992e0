"""Which of the nodes of a call fit a pod, best first: one verdict per shape, not per node.

Only nodes on which other pods' holds or the pod's own claims make a difference are judged one by one; there are never many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby

from extender.node_view import Shape
from extender.state import ClusterState
from topology.placement import Placement, Reason, Rejection
from topology.request import GpuRequest

NOT_KNOWN = Rejection(Reason.NO_GPUS, "node is not known to the extender yet")


@dataclass(frozen=True, slots=True)
class Fit:
    """Nodes that are equally good for the pod."""

    placement: Placement
    free: int
    """How many GPUs are free there."""
    names: Iterable[str]
    """In order, at least one."""

    @property
    def rank(self) -> tuple[float, int]:
        """Higher scores first; among equal ones fewer free GPUs, which leaves the emptier nodes whole."""
        return -self.placement.score, self.free


@dataclass(slots=True)
class Ranking:
    """The verdicts on the nodes of a call."""

    fits: list[Fit] = field(default_factory=list)
    """Best first."""
    rejected: list[tuple[Rejection, Iterable[str]]] = field(default_factory=list)
    """Complete when nothing fits."""

    def best_first(self) -> Iterator[str]:
        """Yield the names of the nodes that fit; those that are equally good in order of their names."""
        for _, equals in groupby(self.fits, key=lambda fit: fit.rank):
            yield from merge(*(fit.names for fit in equals))

    def add(self, verdict: Placement | Rejection, free: int, names: Iterable[str]) -> None:
        """Take in a verdict."""
        if isinstance(verdict, Placement):
            self.fits.append(Fit(verdict, free.bit_count(), names))
        else:
            self.rejected.append((verdict, names))


def rank(
    state: ClusterState, uid: str, wish: GpuRequest, names: frozenset[str], held_for_others: Mapping[str, int]
) -> Ranking:
    """Judge `names` for one pod; `held_for_others` is node → GPUs that are to be left to other pods.

    One plan per shape; per node no more than a set look-up.
    """
    ranking, views = Ranking(), state.views
    special = {name for name in {*held_for_others, *state.claimed_on(uid)} if name in names and name in views}
    for name in sorted(special):
        verdict = views[name].plan_for(uid, wish, held_for_others.get(name, 0))
        ranking.add(verdict, views[name].shape.free, (name,))
    for shape, alike in _by_shape(state, names - special if special else names):
        ranking.add(shape.plan(wish), shape.free, alike)
    ranking.fits.sort(key=lambda fit: fit.rank)
    if not ranking.fits and (unknown := names.difference(views)):
        ranking.rejected.append((NOT_KNOWN, sorted(unknown)))
    return ranking


@dataclass(frozen=True, slots=True)
class _Among:
    """Those of `alike` that are wanted, in order."""

    alike: Sequence[str]
    wanted: frozenset[str]

    def __iter__(self) -> Iterator[str]:
        return filter(self.wanted.__contains__, self.alike)


def _by_shape(state: ClusterState, names: frozenset[str]) -> Iterator[tuple[Shape, Iterable[str]]]:
    """Yield the known ones of `names` by shape, each group in order and none of them empty."""
    if len(names) < len(state.shapes):
        found: dict[Shape, list[str]] = {}
        for name in sorted(names.intersection(state.views)):
            found.setdefault(state.views[name].shape, []).append(name)
        yield from found.items()
        return
    for shape, alike in state.shapes.items():
        if not names.isdisjoint(alike):
            yield shape, _Among(alike, names)
