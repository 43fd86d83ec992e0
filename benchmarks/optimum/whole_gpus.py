"""What can be held on one machine by pods of whole GPUs: which pod has which set, those that are alike taken together.

Two states are alike if swapping GPUs that are wired alike makes one of the other. A state has the set of every pod and
not only the free GPUs. That is because pods end one by one and give back what they had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from benchmarks.optimum.states import States
from topology.bandwidth.rings import members_of
from topology.placement.topology_class import TopologyClass
from topology.request.suitability import kinds
from topology.value.fragmentation import FreeCapacity
from topology.value.score import Weights, worth
from topology.value.symmetry import Counts, Symmetry, subsets

Held = tuple[Counts, tuple[Counts, ...]]
"""Free GPUs, then the set of each pod in order; each by how many of every group of interchangeable GPUs."""

MAX_STATES = 12_000
"""Of one machine."""


class TooManyStates(Exception):
    """A machine has more states than can be looked at in minutes."""


class WholeGpus:
    """The states of a machine, and how they are numbered."""

    def __init__(self, topology_class: TopologyClass, sizes: Sequence[int], weights: Weights) -> None:
        """Find them all, from the empty machine on; raises `TooManyStates`."""
        self.topology_class = topology_class
        self.sizes = sizes
        self._weights = weights
        self._symmetry = Symmetry(topology_class.wiring, kinds(topology_class.node))
        self._numbers: dict[Held, int] = {}
        self._held: list[Held] = []
        self.states = self._explored()
        masks = [self._symmetry.set_of(free) for free, _ in self._held]
        self.left_milli = [FreeCapacity.of_whole(len(topology_class.node), mask, 0).gpu_milli for mask in masks]
        """By state: what is left of each GPU, all or nothing."""
        self.sharers = [(0,) * len(topology_class.node)] * len(masks)
        """By state: how many pods share each GPU; none does."""

    def after(self, state: int, place: int, taken: int) -> int:
        """Return where it leads to that a pod takes these of the free GPUs (mask)."""
        free, pods = self._held[state]
        return self._number(self._with(free, pods, self._symmetry.counts(taken)))

    def state_of(self, masks: Sequence[int]) -> int:
        """Return the state in which pods have these sets."""
        pods = tuple(self._symmetry.counts(mask) for mask in masks)
        free = tuple(size - sum(taken) for size, *taken in zip(self._symmetry.sizes, *pods, strict=True))
        return self._number((free, pods))

    def sets_in(self, state: int) -> list[int]:
        """Return sets of pods that are in this state, as masks; one of all ways that are alike."""
        _, pods = self._held[state]
        left = [members_of(group) for group in self._symmetry.groups]
        masks = []
        for pod in pods:
            masks.append(sum(1 << i for group, count in zip(left, pod, strict=True) for i in group[:count]))
            left = [group[count:] for group, count in zip(left, pod, strict=True)]
        return masks

    def worth_of(self, mask: int) -> float:
        """Return what a pod with this set is worth."""
        return self._worth(self._symmetry.counts(mask))

    def _explored(self) -> States:
        moves: list[list[list[int]]] = [[] for _ in self.sizes]
        ends: list[Counter[int]] = []
        self._number((self._symmetry.sizes, ()))
        for free, pods in self._held:
            for found, size in zip(moves, self.sizes, strict=True):
                found.append(sorted({self._number(self._with(free, pods, taken)) for taken in self._sets(free, size)}))
            ends.append(Counter(self._number(self._without(free, pods, pod)) for pod in pods))
            if len(self._held) > MAX_STATES:
                raise TooManyStates(f"one machine has more than {MAX_STATES:,} states")
        linked = {pod: self._is_clique(pod) for _, pods in self._held for pod in pods}
        earned = {pod: self._worth(pod) for pod in linked}
        return States(
            [[np.array(after, dtype=np.int32) for after in found] for found in moves],
            [(np.array([*after], dtype=np.int32), np.array([*after.values()], dtype=np.float64)) for after in ends],
            np.array([sum(earned[pod] for pod in pods) for _, pods in self._held]),
            np.array([[sum(sum(pod) == size for pod in pods) for size in self.sizes] for _, pods in self._held], float),
            np.array(
                [
                    [sum(sum(pod) == size and linked[pod] for pod in pods) for size in self.sizes]
                    for _, pods in self._held
                ],
                float,
            ),
        )

    def _sets(self, free: Counts, size: int) -> list[Counts]:
        mask = self._symmetry.set_of(free)
        return [self._symmetry.counts(taken) for taken in subsets([g & mask for g in self._symmetry.groups], size)]

    def _number(self, held: Held) -> int:
        if held not in self._numbers:
            alike = self._symmetry.least(*held)
            known = self._numbers.get(alike)
            if known is None:
                known = self._numbers[alike] = len(self._held)
                self._held.append(alike)
            self._numbers[held] = known
        return self._numbers[held]

    @staticmethod
    def _with(free: Counts, pods: tuple[Counts, ...], taken: Counts) -> Held:
        return tuple(a - b for a, b in zip(free, taken, strict=True)), (*pods, taken)

    @staticmethod
    def _without(free: Counts, pods: tuple[Counts, ...], ended: Counts) -> Held:
        place = pods.index(ended)
        return tuple(a + b for a, b in zip(free, ended, strict=True)), pods[:place] + pods[place + 1 :]

    def _worth(self, pod: Counts) -> float:
        bandwidth = self.topology_class.predict(self._symmetry.set_of(pod))[0] if sum(pod) > 1 else None
        return worth(sum(pod), bandwidth, self._weights)

    def _is_clique(self, pod: Counts) -> bool:
        gpus = members_of(self._symmetry.set_of(pod))
        return all(self.topology_class.node.nvlinks(i, j) for i, j in combinations(gpus, 2))
