"""The verdicts on the nodes of one call: looked up by shape, but for the few nodes where this pod is not like any other.

Those are the nodes with GPUs that are held for other pods, and the ones where the pod itself has claims. Scores and order
do not depend on the rails of its group. Only the choice among equal GPUs does, so rails are read where a verdict is
needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from heapq import merge
from types import MappingProxyType
from typing import TypeVar

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.candidates.shape_index import Census, Key
from extender.cluster.rails import RailsOfGroup
from extender.cluster.state import ClusterState
from extender.verbs.names import Names
from topology.placement.decide import Decision
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.domains import Location
from topology.request.gpu_request import GpuRequest

T = TypeVar("T")

NOT_KNOWN = Rejection(Reason.CLOSED, "node is not known to the extender yet", remedy="the pod is tried again")


class Ranking:
    """One pod's verdicts on the nodes of one call.

    Args:
        state: The cluster.
        uid: The pod.
        request: What it asks for.
        names: The nodes.
        held_for_others: Node → what is to be left to other pods.
        rails: What the rails of nodes are to it.
        namespace: Its own.
        yielding: Whether they are left only where the pod fits beside them.
        kept: What of them is left in any case.

    """

    def __init__(
        self,
        state: ClusterState,
        uid: str,
        request: GpuRequest,
        names: Names,
        held_for_others: Mapping[str, Held],
        rails: RailsOfGroup,
        *,
        namespace: str = "",
        yielding: bool = False,
        kept: Mapping[str, Held] = MappingProxyType({}),
    ) -> None:
        self._uid = uid
        self._request = request
        self._held_for_others = kept if yielding else held_for_others
        self._views = state.views
        self._shapes = state.shapes
        self._order = self._shapes.order(request, namespace)
        self._names = names
        views = self._views
        special = {name for name in {*held_for_others, *state.claimed_on(uid)} if name in views and name in names}
        to_come = self._order.to_come
        self._rails = rails

        def decide(name: str, on: Rails) -> Decision:
            view, held = views[name], held_for_others.get(name, NOTHING)
            if not yielding:
                return view.decide_for(uid, request, held, to_come(view.shape), on)
            return view.decide_yielding(uid, request, held, to_come(view.shape), on, kept.get(name, NOTHING))

        self._decide: Callable[[str, Rails], Decision] = decide
        self._special = {name: (self._decide(name, NO_RAILS), views[name]) for name in special}
        self._elsewhere: Rejection | None = None

    def within(self, names: frozenset[str], elsewhere: Rejection) -> Ranking:
        """Return the same for a pod that may go to some of the nodes only, with the reason for the others that fit."""
        ranking = copy(self)
        ranking._names = Names(self._names.all & names)
        ranking._elsewhere = elsewhere
        return ranking

    def census(self, locations: Mapping[str, Location]) -> Census:
        """Count the nodes that fit, but for the few where this pod is not like any other."""
        return self._order.census(self._names.all.difference(self._special), locations)

    def fitting(self, census: Census, locations: Mapping[str, Location]) -> Counter[Location]:
        """Return how many pods like this one the nodes of each location could take, those few included."""
        fits = self._order.fitting(census)
        for name, (verdict, _) in self._special.items():
            if isinstance(verdict, Placement):
                held = self._held_for_others.get(name, NOTHING)
                fits[locations[name]] += max(1, self._views[name].how_many_fit(self._uid, self._request, held))
        return fits

    def verdict(self, name: str) -> Placement | Rejection:
        """Return the verdict on one node."""
        return self.verdicts([name])[name]

    def verdicts(self, names: Sequence[str]) -> dict[str, Placement | Rejection]:
        """Return the verdicts on nodes of the call, in their order and each once."""
        verdicts = self._each(names, lambda verdict: verdict)
        return {name: self._on_rails(name, verdict) for name, verdict in zip(names, verdicts, strict=True)}

    def scores(self, names: Sequence[str]) -> list[float | None]:
        """Return the score of each node, `None` where the pod does not fit."""
        return self._each(names, lambda verdict: verdict.score if isinstance(verdict, Placement) else None)

    def refusals(self, names: Sequence[str]) -> list[tuple[Rejection, str] | None]:
        """Return why the pod does not fit on each node, in words too; `None` where it fits. Nodes that are alike share one."""
        return self._each(
            names, lambda verdict: (verdict, verdict.sentence) if isinstance(verdict, Rejection) else None
        )

    def _on_rails(self, name: str, verdict: Placement | Rejection) -> Placement | Rejection:
        """Return the verdict with the GPUs that are on the best rails for the pod's group."""
        rails = self._rails.on(self._views[name]) if isinstance(verdict, Placement) else NO_RAILS
        if rails == NO_RAILS:
            return verdict
        on_rails = self._decide(name, rails)
        return on_rails if isinstance(on_rails, Placement) else verdict

    def _each(self, names: Sequence[str], of: Callable[[Placement | Rejection], T]) -> list[T]:
        """Apply `of` to the verdict on each node."""
        values = self._each_alone(names, of)
        if self._elsewhere is not None:
            fits = self._each_alone(names, lambda verdict: isinstance(verdict, Placement))
            for position, name in enumerate(names):
                if fits[position] and name not in self._names:
                    values[position] = of(self._elsewhere)
        return values

    def _each_alone(self, names: Sequence[str], of: Callable[[Placement | Rejection], T]) -> list[T]:
        """Apply `of` to the verdict on each node; once per shape, so that per node no more than two look-ups are left."""
        buckets = [*self._shapes.buckets_of(names)]
        by_serial = self._order.verdicts
        values = {bucket: of(NOT_KNOWN if bucket is None else by_serial[bucket.serial]) for bucket in set(buckets)}
        results = [*map(values.__getitem__, buckets)]
        if self._special:
            for position, name in enumerate(names):
                if name in self._special:
                    results[position] = of(self._special[name][0])
        return results

    @property
    def best(self) -> str | None:
        """The node that is offered first, `None` when none fits."""
        return next(self.best_first(), None)

    def best_first(self) -> Iterator[str]:
        """Yield the names of the nodes that fit."""
        names, order = self._names, self._order
        ordered = order.best_of(names.all, self._shapes.bucket_of) if names.are_few else order.best_first(names)
        plain = (key for key in ordered if key[-1] not in self._special)
        return (key[-1] for key in merge(self._special_keys(), plain))

    def _special_keys(self) -> list[Key]:
        return sorted(
            (-verdict.score, verdict.takes_of(view.doubtful), view.shape.free.bit_count(), name)
            for name, (verdict, view) in self._special.items()
            if isinstance(verdict, Placement) and name in self._names
        )
