"""The verdicts on the nodes of one call: looked up by shape, but for the few nodes where this pod is not like any other.

Those are the nodes with GPUs that are held for other pods, and the ones where the pod itself has claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from typing import TypeVar

from extender.cluster.shape_index import Key
from extender.cluster.state import ClusterState
from topology.placement import Placement, Reason, Rejection
from topology.request import GpuRequest

T = TypeVar("T")

NOT_KNOWN = Rejection(Reason.CLOSED, "node is not known to the extender yet")


class Ranking:
    """One pod's verdicts on the nodes of one call.

    Args:
        state: The cluster.
        uid: The pod.
        wish: What it asks for.
        names: The nodes.
        held_for_others: Node → GPUs that are to be left to other pods.

    """

    def __init__(
        self,
        state: ClusterState,
        uid: str,
        wish: GpuRequest,
        names: frozenset[str],
        held_for_others: Mapping[str, int],
    ) -> None:
        self._shapes = state.shapes
        self._order = self._shapes.order(wish)
        self._names = names
        views = state.views
        special = {name for name in {*held_for_others, *state.claimed_on(uid)} if name in names and name in views}
        self._special = {
            name: (views[name].plan_for(uid, wish, held_for_others.get(name, 0)), views[name].shape.free.bit_count())
            for name in special
        }

    def verdict(self, name: str) -> Placement | Rejection:
        """Return the verdict on one node."""
        return self._each([name], lambda verdict: verdict)[0]

    def verdicts(self, names: Sequence[str]) -> dict[str, Placement | Rejection]:
        """Return the verdicts on nodes of the call, in their order and each once."""
        return dict(zip(names, self._each(names, lambda verdict: verdict), strict=True))

    def scores(self, names: Sequence[str]) -> list[float | None]:
        """Return the score of each node, `None` where the pod does not fit."""
        return self._each(names, lambda verdict: verdict.score if isinstance(verdict, Placement) else None)

    def _each(self, names: Sequence[str], of: Callable[[Placement | Rejection], T]) -> list[T]:
        """Apply `of` to the verdict on each node; once per shape, so that per node no more than two look-ups are left."""
        buckets = [*self._shapes.buckets_of(names)]
        by_serial = self._order.verdicts
        values = {bucket: of(NOT_KNOWN if bucket is None else by_serial[bucket.serial]) for bucket in set(buckets)}
        found = [*map(values.__getitem__, buckets)]
        if self._special:
            for position, name in enumerate(names):
                if name in self._special:
                    found[position] = of(self._special[name][0])
        return found

    def best_first(self, but: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield the names of the nodes that fit, without those in `but`."""
        plain = self._names.difference(self._special, but) if self._special or but else self._names
        special = (key for key in self._special_keys() if key[2] not in but)
        return (name for _, _, name in merge(special, self._order.best_first(plain)))

    def _special_keys(self) -> list[Key]:
        return sorted(
            (-verdict.score, free, name)
            for name, (verdict, free) in self._special.items()
            if isinstance(verdict, Placement)
        )
