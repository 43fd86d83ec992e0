"""What free GPUs are worth, kept in step with the machines there are and the pods that come.

Each replica learns for itself and each may come to another view; that costs quality at most. After a restart the pods that exist
teach what those before them had taught.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from extender.cluster.shape_index import ShapeIndex
from topology.demand import DRIFT, Demand, drift
from topology.placement import TopologyClasses
from topology.room import PodKind
from topology.value import Weights


class Values:
    """Learns the mix of pods, and computes the values of free sets for it."""

    def __init__(self, classes: TopologyClasses, weights: Weights, shapes: ShapeIndex) -> None:
        self._classes = classes
        self._weights = weights
        self._shapes = shapes
        self._demand = Demand(weights.demand)
        self._met: set[str] = set()

    @property
    def demand(self) -> tuple[tuple[int, float], ...]:
        """The share of pods by GPUs asked for that values are, or will next be, computed for."""
        return self._weights.demand

    def meet(self, uid: str, gpus: int | None) -> None:
        """Take note of a pod, once; `gpus` is `None` when nobody can read what it asks for."""
        if gpus and uid not in self._met:
            self._met.add(uid)
            self._demand.saw(PodKind(gpus))

    def forget(self, uid: str) -> None:
        """Remember a pod that is gone only by what it asked for."""
        self._met.discard(uid)

    def appraise(self) -> Generator[None]:
        """Compute what is missing or out of date, step by step; nothing to do takes no step."""
        if self._demand.is_news():
            sizes, _ = self._demand.look()
            if drift(self._weights.demand, sizes) > DRIFT:
                self._weights = replace(self._weights, demand=sizes)
        for topology_class in self._classes:
            if topology_class.appraised != self._weights:
                yield from topology_class.appraise(self._weights)
                self._shapes.forget_verdicts()
