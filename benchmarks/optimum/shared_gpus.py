"""What can be held on one machine by pods of whole GPUs and pods that share one: who has what, like states taken together.

Next to the sets of whole GPUs a state has the shares of every GPU, and not only the rest. That is because pods end one by
one. GPUs that are wired alike are swapped; groups of such GPUs are not, which costs states and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np

from benchmarks.optimum.states import States
from benchmarks.optimum.whole_gpus import MAX_STATES, TooManyStates
from topology.bandwidth.rings import members_of
from topology.placement.topology_class import TopologyClass
from topology.request.suitability import kinds
from topology.value.fragmentation import WHOLE_GPU_MILLI
from topology.value.score import Weights, worth
from topology.value.symmetry import Counts, Symmetry, subsets

Parts = tuple[int, ...]
"""GiB of each share of one GPU, in order; none: it is free."""
Held = tuple[tuple[tuple[Parts, ...], ...], tuple[Counts, ...]]
"""For each group of interchangeable GPUs those that no pod has whole, then the set of each pod of whole GPUs; all in order."""


class SharedGpus:
    """The states of a machine whose GPUs pods may share, and how they are numbered.

    To serve a share is worth what it takes of a GPU, of the worth of a pod of one GPU.
    """

    def __init__(
        self,
        topology_class: TopologyClass,
        sizes: Sequence[int],
        gib: Sequence[int],
        share_gib: int,
        weights: Weights,
    ) -> None:
        """Find them all, from the empty machine on; raises `TooManyStates`.

        Args:
            topology_class: The machine.
            sizes: Whole GPUs that a pod takes.
            gib: What a pod takes of one GPU; these kinds of pods come after those of whole GPUs.
            share_gib: What all shares of a GPU may take together.
            weights: What pods are worth.

        """
        self.topology_class = topology_class
        self.sizes = sizes
        self.gib = gib
        self.share_gib = share_gib
        self._weights = weights
        self._symmetry = Symmetry(topology_class.wiring, kinds(topology_class.node))
        self._numbers: dict[Held, int] = {}
        self._held: list[Held] = []
        self.states = self._explored()
        self.left_milli = [self._of_each(gpus, self._left) for gpus, _ in self._held]
        """By state: what is left of each GPU; states that differ only in who has the rest look the same."""
        self.sharers = [self._of_each(gpus, len) for gpus, _ in self._held]
        """By state: how many pods share each GPU."""

    def after(self, state: int, place: int, taken: int) -> int:
        """Return where it leads to that a pod of one of the kinds takes these GPUs (mask), or its share of the one."""
        held = self._held[state]
        if place < len(self.sizes):
            return self._number(self._with_pod(held, self._symmetry.counts(taken)))
        group = next(index for index, mask in enumerate(self._symmetry.groups) if mask & taken)
        member = members_of(self._symmetry.groups[group]).index(taken.bit_length() - 1)
        parts = held[0][group][member]
        return self._number(self._with_parts(held, group, parts, (*parts, self.gib[place - len(self.sizes)])))

    def _explored(self) -> States:
        places = range(len(self.sizes) + len(self.gib))
        moves: list[list[list[int]]] = [[] for _ in places]
        ends: list[Counter[int]] = []
        self._number((tuple(((),) * size for size in self._symmetry.sizes), ()))
        for held in self._held:
            for place, found in enumerate(moves):
                found.append(sorted({self._number(after) for after in self._beside(held, place)}))
            ends.append(Counter(self._number(after) for after in self._ended(held)))
            if len(self._held) > MAX_STATES:
                raise TooManyStates(f"one machine has more than {MAX_STATES:,} states")
        pods = [[self._count(held, place) for place in places] for held in self._held]
        cliques = [
            [sum(sum(pod) == size and self._is_clique(pod) for pod in held[1]) for size in self.sizes]
            for held in self._held
        ]
        return States(
            [[np.array(after, dtype=np.int32) for after in found] for found in moves],
            [(np.array([*after], dtype=np.int32), np.array([*after.values()], dtype=np.float64)) for after in ends],
            np.array([self._worth(held) for held in self._held]),
            np.array(pods, float),
            np.array([[*row, *(0 for _ in self.gib)] for row in cliques], float),
        )

    def _beside(self, held: Held, place: int) -> Iterator[Held]:
        gpus, _ = held
        if place < len(self.sizes):
            free = self._symmetry.set_of(tuple(group.count(()) for group in gpus))
            for taken in subsets([mask & free for mask in self._symmetry.groups], self.sizes[place]):
                yield self._with_pod(held, self._symmetry.counts(taken))
            return
        gib = self.gib[place - len(self.sizes)]
        for index, group in enumerate(gpus):
            for parts in set(group):
                if sum(parts) + gib <= self.share_gib:
                    yield self._with_parts(held, index, parts, (*parts, gib))

    def _ended(self, held: Held) -> Iterator[Held]:
        gpus, pods = held
        for place, pod in enumerate(pods):
            back = tuple((*group, *((),) * count) for group, count in zip(gpus, pod, strict=True))
            yield self._ordered(back, pods[:place] + pods[place + 1 :])
        for index, group in enumerate(gpus):
            for parts in group:
                for place in range(len(parts)):
                    yield self._with_parts(held, index, parts, parts[:place] + parts[place + 1 :])

    def _with_pod(self, held: Held, taken: Counts) -> Held:
        gpus, pods = held
        rest = tuple(
            tuple([*group][count:])
            for group, count in zip(gpus, taken, strict=True)  # free GPUs come first
        )
        return self._ordered(rest, (*pods, taken))

    def _with_parts(self, held: Held, index: int, before: Parts, now: Parts) -> Held:
        gpus, pods = held
        group = [*gpus[index]]
        group.remove(before)
        return self._ordered((*gpus[:index], (*group, tuple(sorted(now))), *gpus[index + 1 :]), pods)

    @staticmethod
    def _ordered(gpus: tuple[tuple[Parts, ...], ...], pods: tuple[Counts, ...]) -> Held:
        return (
            tuple(tuple(sorted(group, key=lambda parts: (sum(parts), parts))) for group in gpus),
            tuple(sorted(pods)),
        )

    def _number(self, held: Held) -> int:
        if held not in self._numbers:
            self._numbers[held] = len(self._held)
            self._held.append(held)
        return self._numbers[held]

    def _of_each(self, gpus: tuple[tuple[Parts, ...], ...], of: Callable[[Parts], int]) -> tuple[int, ...]:
        found = [0] * len(self.topology_class.node)
        for mask, group in zip(self._symmetry.groups, gpus, strict=True):
            for position, parts in zip(members_of(mask), group, strict=False):  # pods have the others whole
                found[position] = of(parts)
        return tuple(found)

    def _left(self, parts: Parts) -> int:
        return (self.share_gib - sum(parts)) * WHOLE_GPU_MILLI // self.share_gib

    def _count(self, held: Held, place: int) -> int:
        gpus, pods = held
        if place < len(self.sizes):
            return sum(sum(pod) == self.sizes[place] for pod in pods)
        return sum(parts.count(self.gib[place - len(self.sizes)]) for group in gpus for parts in group)

    def _worth(self, held: Held) -> float:
        gpus, pods = held
        shared = sum(sum(parts) for group in gpus for parts in group) / self.share_gib
        return shared * worth(1, None, self._weights) + sum(self._worth_of(pod) for pod in pods)

    def _worth_of(self, pod: Counts) -> float:
        bandwidth = self.topology_class.predict(self._symmetry.set_of(pod))[0] if sum(pod) > 1 else None
        return worth(sum(pod), bandwidth, self._weights)

    def _is_clique(self, pod: Counts) -> bool:
        gpus = members_of(self._symmetry.set_of(pod))
        return all(self.topology_class.node.nvlinks(i, j) for i, j in combinations(gpus, 2))
