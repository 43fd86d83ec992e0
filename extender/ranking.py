"""The verdicts on the nodes of one call: looked up by shape, but for the few nodes where this pod is not like any other.

Those are the nodes with GPUs that are held for other pods, and the ones where the pod itself has claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge

from extender.shape_index import Key
from extender.state import ClusterState
from topology.placement import Placement, Reason, Rejection
from topology.request import GpuRequest

NOT_KNOWN = Rejection(Reason.NO_GPUS, "node is not known to the extender yet")


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
        return self.verdicts([name])[name]

    def verdicts(self, names: Iterable[str]) -> dict[str, Placement | Rejection]:
        """Return the verdicts on nodes of the call, in their order and each once."""
        bucket_of, by_serial = self._shapes.bucket_of, self._order.verdicts
        found = {name: NOT_KNOWN if (bucket := bucket_of(name)) is None else by_serial[bucket.serial] for name in names}
        found.update((name, verdict) for name, (verdict, _) in self._special.items() if name in found)
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
