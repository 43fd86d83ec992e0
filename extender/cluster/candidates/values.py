"""What free GPUs are worth, kept in step with the machines there are and the pods that come.

Each replica learns for itself and each may come to another view; that costs quality at most. After a restart the pods that exist
teach what those before them had taught.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import TopologyClasses
from topology.value.coming import matched
from topology.value.demand import DRIFT, Demand, drift
from topology.value.fragmentation import PodKind
from topology.value.score import Weights


class Values:
    """Learns the mix of pods, and computes the values of free sets for it."""

    def __init__(self, classes: TopologyClasses, weights: Weights, changed: Callable[[], None]) -> None:
        """Start from the mix of the weights; `changed` is called whenever decisions may come out differently from now on."""
        self._classes = classes
        self._weights = weights
        self._changed = changed
        self._demand = Demand(weights.demand)
        self._met: dict[str, PodKind] = {}
        self._running: set[str] = set()
        self.wake: Callable[[], object] = lambda: None
        """Is called when so many pods have come that there is something to `appraise`."""
        self.typical: tuple[tuple[PodKind, float], ...] = ()
        """The kinds that most pods are of, and their share of these, as of the last mix."""

    @property
    def demand(self) -> tuple[tuple[int, float], ...]:
        """The share of pods by GPUs asked for that values are, or will next be, computed for."""
        return self._weights.demand

    def meet(self, uid: str, kind: PodKind | None, *, running: bool, owner: str = "") -> None:
        """Take note of a pod, and of whether it holds its GPUs; `kind` is `None` when nobody can read what it asks for.

        Owners, such as namespaces, share the places for different kinds fairly.
        """
        if kind is None:
            return
        if uid not in self._met:
            self._met[uid] = kind
            self._demand.saw(kind, owner)
            if self._demand.is_news():
                self.wake()
        if running and uid not in self._running:
            self._running.add(uid)
            self._demand.started(kind)
        elif not running:
            self._end(uid, kind)

    def forget(self, uid: str) -> None:
        """Remember a pod that is gone only by what it asked for, and how long it ran."""
        kind = self._met.pop(uid, None)
        if kind is not None:
            self._end(uid, kind)

    def _end(self, uid: str, kind: PodKind) -> None:
        if uid in self._running:
            self._running.remove(uid)
            self._demand.ended(kind)

    def appraise(self) -> Generator[None]:
        """Compute what is missing or out of date, step by step; nothing to do takes no step."""
        if self._demand.is_news():
            sizes, typical = self._demand.mix()
            yield from matched(typical, self._models())
            self.typical = tuple(typical)
            if drift(self._weights.demand, sizes) > DRIFT:
                self._weights = replace(self._weights, demand=sizes)
            self._changed()
        for topology_class in self._classes:
            if topology_class.appraised != self._weights:
                yield from matched(self.typical, _models(topology_class))
                yield from topology_class.appraise(self._weights)
                self._changed()

    def _models(self) -> set[str]:
        return {model for topology_class in self._classes for model in _models(topology_class)}


def _models(topology_class: TopologyClass) -> set[str]:
    return {gpu.model for gpu in topology_class.node.gpus}
