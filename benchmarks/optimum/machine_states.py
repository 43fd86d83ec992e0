"""What can be held on one machine: which pods have which sets of GPUs, those that are alike taken together.

Two states are alike if swapping GPUs that are wired alike makes one of the other. A state remembers the set of every pod, not
only the free GPUs, because pods end one by one and give back what they had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from benchmarks.optimum.states import Indexes, Kind, Numbers, States
from topology.bandwidth.rings import members_of
from topology.placement.topology_class import TopologyClass
from topology.request.suitability import kinds
from topology.value.score import Weights, worth
from topology.value.symmetry import Counts, Symmetry, subsets

Held = tuple[Counts, tuple[Counts, ...]]
"""Free GPUs and the set of each pod, each by how many of each group of interchangeable GPUs."""

MAX_STATES = 12_000
"""Of one machine, up to which a computation takes minutes."""


class TooManyStates(Exception):
    """The machine has too many states to look at all of them."""


class MachineStates(States):
    """The states of a machine whose pods take whole GPUs."""

    def __init__(self, topology_class: TopologyClass, sizes: Sequence[int], weights: Weights) -> None:
        """Explore them all; raises `TooManyStates`."""
        node = topology_class.node
        self._symmetry = Symmetry(topology_class.wiring, kinds(node))
        self._index: dict[Held, int] = {}
        self._held: list[Held] = []
        self._sizes = sizes
        self._enter((self._symmetry.sizes, ()))
        moves: list[list[Indexes]] = [[] for _ in sizes]
        ends: list[tuple[Indexes, Numbers]] = []
        for free, pods in self._held:
            for place, size in enumerate(sizes):
                afters = {self._taken(free, pods, taken) for taken in self._sets(free, size)}
                moves[place].append(np.array(sorted(afters), dtype=np.int32))
            ended = Counter(self._ended(free, pods, pod) for pod in pods)
            ends.append((np.array([*ended], dtype=np.int32), np.array([*ended.values()], dtype=np.float64)))
            if len(self._held) > MAX_STATES:
                raise TooManyStates(f"more than {MAX_STATES} states of one machine")
        self.moves, self.ends = moves, ends
        self.views = [*dict.fromkeys(free for free, _ in self._held)]
        number = {free: index for index, free in enumerate(self.views)}
        self.view_of = np.array([number[free] for free, _ in self._held], dtype=np.int32)
        self.pods = np.array([[sum(map(sum, [])) for _ in sizes] for _ in self._held], dtype=np.float64)
        cliques, worths = [], []
        for place, size in enumerate(sizes):
            for state, (_, held) in enumerate(self._held):
                self.pods[state, place] = sum(sum(pod) == size for pod in held)
        known: dict[Counts, tuple[float, bool]] = {}
        for _, held in self._held:
            for pod in held:
                if pod not in known:
                    mask = self._symmetry.set_of(pod)
                    bandwidth = topology_class.predict(mask)[0] if sum(pod) > 1 else None
                    linked = all(node.nvlinks(i, j) for i, j in combinations(members_of(mask), 2))
                    known[pod] = worth(sum(pod), bandwidth, weights), linked
            worths.append(sum(known[pod][0] for pod in held))
            cliques.append([sum(sum(pod) == size and known[pod][1] for pod in held) for size in sizes])
        self.worth = np.array(worths)
        self.cliques = np.array(cliques, dtype=np.float64)
