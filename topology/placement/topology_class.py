"""What is known of all machines that are wired and equipped alike: compiled once, and remembered together.

Predictions, values of free sets and plans of one class hold for every node of it. Interchangeable GPUs are tried once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import cache, cached_property, reduce
from operator import or_
from typing import Any, Protocol, TypeAlias, TypeVar, TypeVarTuple

from topology.bandwidth.measured import Figure, kind_of
from topology.bandwidth.predict import Bandwidth, Wiring, predict
from topology.bandwidth.rings import members_of
from topology.effort import SLICE_STEPS, Effort, Search, advance, finish
from topology.node.alike import Block, unlike
from topology.node.links import Affinity, PciePath
from topology.node.model import NodeTopology
from topology.node.nics import rails
from topology.node.slices import overlaps
from topology.placement.measured_sets import MeasuredSets
from topology.placement.nvidia_best_effort import Outcome, searched_outcomes
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.searched_sets import SearchedSets
from topology.request.suitability import gpus_near_nic, kinds
from topology.value.opportunity_cost import SizeDemand, Table, value_table
from topology.value.score import Weights, formula, worth
from topology.value.symmetry import Counts, Symmetry, lowest_first, subsets, ways

Answer = TypeVar("Answer")
Key = TypeVar("Key")
About = TypeVarTuple("About")

MAX_ANSWERS = 50_000
"""Of each sort, remembered per class, so that users' ever new requests do not fill the memory; about 0.4 KB each."""
MAX_CHOICES = 1_000
"""Sets of one size up to which values of free sets are computed."""
MAX_BEGUN = 64
"""Searches of one class that wait for their end; whoever asks for more asks again."""
PREDICTION_STEPS = 50
"""Of one prediction beside its ring searches."""

TableKey: TypeAlias = tuple[NodeTopology, Weights, tuple[Figure, ...]]
"""All that a table of values depends on."""


class Tables(Protocol):
    """A memory of tables, for programs that value the same machines again and again."""

    def get(self, key: TableKey, /) -> Table | None:
        """Return the table that was computed of this."""
        ...

    def put(self, key: TableKey, value: Table, /) -> object:
        """Keep a table."""
        ...


class TopologyClass:
    """What plans need of a topology, compiled once, and what was found on it so far."""

    def __init__(
        self,
        node: NodeTopology,
        weights: Weights = Weights(),  # noqa: B008
        effort: Effort | None = None,
        tables: Tables | None = None,
    ) -> None:
        self.node = node
        self.weights = weights
        self._tables = tables
        self.effort = Effort() if effort is None else effort
        self.wiring = Wiring(node)
        self.meter = self.wiring.meter
        """What all searches of the class have cost."""
        self.near_nic = gpus_near_nic(node)
        self._rails = rails(node)
        self.measured_sets: MeasuredSets | None = None
        """What stands in the place of predictions."""
        self._figures: tuple[Figure, ...] = ()
        self._predictions: dict[int, tuple[Bandwidth, Affinity]] = {}
        """By set; where no two GPUs are told apart, by size."""
        self._best_sets: dict[tuple[int, int], tuple[int, float] | None] = {}
        self._values: dict[int, float] = {}
        self._answers: dict[tuple[object, ...], Any] = {}
        """Those of `recall`, which rest on the values."""
        self._begun: dict[tuple[object, ...], Search[object]] = {}
        """Searches for some that have not come to their end."""
        self.news = 0
        """Rises whenever a question that was asked in vain may have an answer by now."""
        self._outcomes: dict[tuple[int, int], tuple[Outcome, ...]] = {}
        self._symmetry = Symmetry(self.wiring, kinds(node))
        self._numa_nodes = _numa_nodes(node)
        self._alike = [group & near for group in self._symmetry.groups for near in self._numa_nodes if group & near]
        """Masks of GPUs that neither wires, requests nor NUMA nodes tell apart."""
        self._is_uniform = len(self._symmetry.groups) == 1
        self._searched_sets = SearchedSets(
            self.wiring, kinds(node), self._alike, self._numa_nodes, is_uniform=self._is_uniform
        )
        self.table: Table | None = None
        """The value of free sets, by how many GPUs of each group of interchangeable GPUs are free."""
        self.appraised: Weights | None = None
        """What `appraise` has been through with."""

    @cached_property
    def kind(self) -> str:
        """The kind of machine, as measured figures name it; classes that differ in software or NICs alone are of one."""
        return kind_of(self.node)

    @cached_property
    def _excluded(self) -> tuple[int, ...]:
        """What each device excludes, by position; empty where GPUs are offered either whole or in parts."""
        node, gpus = self.node, len(self.node)
        if not any(each.on_demand for each in node.slices):
            return ()
        parts, whole = [0] * gpus, list[int]()
        for i, (each, others) in enumerate(zip(node.slices, overlaps(node.slices), strict=True), gpus):
            parts[node.positions[each.gpu]] |= 1 << i
            whole.append(1 << node.positions[each.gpu] | sum(1 << gpus + j for j in others))
        return (*parts, *whole)

    def excluding(self, devices: int) -> int:
        """Return these devices and all that nobody else may have while somebody has them, as a mask over positions."""
        if not self._excluded:
            return devices
        return reduce(or_, (self._excluded[i] for i in members_of(devices)), devices)

    @property
    def blocks(self) -> Sequence[Block]:
        """What of a machine of more than 16 GPUs can be exchanged as a whole."""
        return self._searched_sets.blocks

    @property
    def breadth(self) -> int:
        """How many GPUs there are of which no two can stand in for each other."""
        return unlike(self.blocks) if self.blocks else len(self._alike)

    def measured(self, figures: tuple[Figure, ...]) -> bool:
        """Let these figures, and no others, stand in the place of predictions; returns whether they are others than before.

        Values of free sets stay as they are until they are appraised anew.
        """
        if figures == self._figures:
            return False
        self._figures = figures
        self.measured_sets = MeasuredSets(self.node, self.wiring, figures) if figures else None
        self._predictions.clear()
        self._forget_decisions()
        self.appraised = None
        return True

    def predict(self, mask: int) -> tuple[Bandwidth, Affinity]:
        """Return bandwidth, measured where it was, and affinity of the set, two or more GPUs."""
        alike = mask.bit_count() if self._is_uniform else mask
        found = self._predictions.get(alike)
        self.meter.steps += 1
        if found is None:
            bandwidth, affinity = predict(self.wiring, mask)
            if self.measured_sets is not None:
                bandwidth = self.measured_sets.instead_of(bandwidth, mask)
            found = _keep(self._predictions, alike, (bandwidth, affinity))
            self.meter.steps += PREDICTION_STEPS + mask.bit_count()
        return found

    def recall(self, question: Callable[[TopologyClass, *About], Search[Answer]], *about: *About) -> Answer | None:
        """Return what `question` finds about this class; asked again, it is a table look-up until the values change.

        It is searched for as far as may be now; where that is not far enough the search goes on beside calls: `None`.
        """
        found: Answer | None = self._answers.get((question, about))
        if found is None:
            self._seek((question, about), lambda: self.searched(question, *about))
            found = self._answers.get((question, about))
        return found

    def searched(self, question: Callable[[TopologyClass, *About], Search[Answer]], *about: *About) -> Search[Answer]:
        """Search for what `recall` returns, as part of another search."""
        known, key = self._answers, (question, about)
        found: Answer | None = known.get(key)
        if found is None:
            found = yield from question(self, *about)
            _keep(known, key, found)
            self.news += 1
        return found

    def outcomes(self, free: int, gpus: int) -> Search[tuple[Outcome, ...]]:
        """Search for what NVIDIA's plugin may do with these free GPUs and a size, the likeliest first."""
        known, key = self._outcomes, (free, gpus)
        found = known.get(key)
        if found is None:
            found = yield from searched_outcomes(self.node, free, gpus, self.meter)
            _keep(known, key, found)
        return found

    def _seek(self, key: tuple[object, ...], begin: Callable[[], Search[object]]) -> None:
        search = self._begun.get(key)
        if search is None:
            search = begin()
        elif self.effort.is_bounded:
            return
        if self.effort.spend(search, self.meter):
            self._begun.pop(key, None)
        elif len(self._begun) < MAX_BEGUN:
            if not self._begun:
                self.effort.put_off(self)
            self._begun[key] = search
        else:
            self.news += 1  # it was begun in vain, and may be begun again

    def go_on(self, steps: int) -> bool:
        """Go on with the search that was begun first; returns whether any are left."""
        key = next(iter(self._begun), None)
        if key is not None and advance(self._begun[key], self.meter, steps):
            del self._begun[key]
        return bool(self._begun)

    def stop_searching(self) -> None:
        """Drop the searches that were begun: nobody waits for them now; who asks again begins anew."""
        self._begun.clear()
        self.news += 1

    def forget(self) -> None:
        """Drop what was found and what is searched for: the class is of no use to anybody now."""
        self._forget_decisions()
        self._predictions.clear()
        self._outcomes.clear()
        self.table = self.appraised = None

    def value(self, free: int) -> float:
        """Return what the free GPUs are worth to pods still to come: computed once `appraise` is through, by formula before."""
        found = self._values.get(free)
        return finish(self.valued(free)) if found is None else found

    def valued(self, free: int) -> Search[float]:
        """Search for `value`."""
        found = self._values.get(free)
        if found is None:
            if self.table is not None:
                found = self.table.get(self._symmetry.canonical(self._symmetry.counts(free)))
            if found is None:  # no table, or a set that no pod of the mix ever leaves behind
                found = yield from formula(free, self.weights, self._best_set)
            _keep(self._values, free, found)
        return found

    def value_lost(self, free: int, chosen: int) -> float:
        """Return what the pods to come lose of the free GPUs if these are taken."""
        before, after = self._values.get(free), self._values.get(free & ~chosen)
        return finish(self.loss(free, chosen)) if before is None or after is None else before - after

    def loss(self, free: int, chosen: int) -> Search[float]:
        """Search for `value_lost`."""
        before = yield from self.valued(free)
        return before - (yield from self.valued(free & ~chosen))

    def appraise(self, weights: Weights) -> Generator[None]:
        """Compute the value of every free set for this demand, in the steps of `value_table`.

        Scores change when the last step is done, all at once. Machines with too many different free sets keep the formula.
        """
        figures, kept = self._figures, self._tables
        table = kept.get((self.node, weights, figures)) if kept is not None else None
        if table is None:
            table = yield from self._tabulated(weights)
            if figures is not self._figures:
                return  # it mixes what was known before and after; the next round computes it anew
            if kept is not None and table is not None:
                kept.put((self.node, weights, figures), table)
        self.weights = self.appraised = weights
        self.table = table
        self._forget_decisions()

    def _tabulated(self, weights: Weights) -> Generator[None, None, Table | None]:
        offers = self._offers(weights)
        choices = max((ways(self._symmetry.sizes, offer.size) for offer in offers), default=0)
        if choices > MAX_CHOICES:
            return None
        yield from self._predicted(offers)
        return (yield from value_table(self._symmetry, offers))

    def _forget_decisions(self) -> None:
        self._values.clear()
        self._best_sets.clear()
        self._answers.clear()
        self._begun.clear()

    def _predicted(self, offers: Sequence[SizeDemand]) -> Generator[None]:
        """Predict all sets that the offers will ask about, in steps."""
        for size in {offer.size for offer in offers} - {1}:
            end = self.meter.steps + SLICE_STEPS
            for mask in subsets(self._symmetry.groups, size):
                self.predict(mask)
                if self.meter.steps > end:
                    yield
                    end = self.meter.steps + SLICE_STEPS

    def _offers(self, weights: Weights) -> list[SizeDemand]:
        fitting = [(size, share) for size, share in weights.demand if size <= len(self.node) and share > 0]
        return [SizeDemand(size, share, self._sets_for(size, weights)) for size, share in fitting]

    def _sets_for(self, size: int, weights: Weights) -> Callable[[Counts], list[tuple[Counts, float]]]:
        """Return which sets a pod to come would take of some free ones, with their worth; as `plan` does it."""

        @cache
        def sets(free: Counts) -> list[tuple[Counts, float]]:
            open_to_it = self._symmetry.set_of(free)
            masks = subsets([group & open_to_it for group in self._symmetry.groups], size)
            if size == 1:
                return [(self._symmetry.counts(mask), worth(1, None, weights)) for mask in masks]
            predicted = {mask: self.predict(mask)[0] for mask in masks}
            best = max((bandwidth.point for bandwidth in predicted.values()), default=0.0)
            return [
                (self._symmetry.counts(mask), worth(size, bandwidth, weights))
                for mask, bandwidth in predicted.items()
                if bandwidth.point == best
            ]

        return sets

    def subsets(self, free: int, size: int, must: int = 0) -> list[int]:
        """Return the sets of `size` free GPUs that a search looks at, as masks; those of `must` are in each of them."""
        return finish(self.sets(free, size, must))

    def sets(self, free: int, size: int, must: int = 0, marks: Sequence[int] | None = ()) -> Search[list[int]]:
        """Search for `subsets`; `marks` as in `SearchedSets`."""
        return self._searched_sets.search(free, size, must, marks)

    def _best_set(self, free: int, size: int) -> Search[tuple[int, float] | None]:
        key = (free, size)
        if key not in self._best_sets:
            return _keep(self._best_sets, key, (yield from self._find_best_set(free, size)))
        return self._best_sets[key]

    def _find_best_set(self, free: int, size: int) -> Search[tuple[int, float] | None]:
        """Grow a set from each free GPU along its fastest hops and keep the fastest set; quick, and not always the best."""
        if free.bit_count() < size:
            return None
        if size == 1:
            return free & -free, worth(1, None, self.weights)
        some = self._searched_sets.some_of(free)
        seeds = (group & some & -(group & some) for group in self._symmetry.groups if group & some)
        grown = set()
        for seed in seeds:
            grown.add(found := self._searched_sets.grow(seed, free, size - 1))
            self.predict(found)
            yield
        best = max(grown, key=lambda mask: (self.predict(mask)[0].point, lowest_first(mask)))
        return best, worth(size, self.predict(best)[0], self.weights)

    def spread(self, chosen: int, free: int) -> tuple[int, int]:
        """Return how many NUMA nodes the chosen GPUs lie in, and how many GPUs were free there."""
        touched = [node for node in self._numa_nodes if node & chosen]
        return len(touched), sum((node & free).bit_count() for node in touched)

    def spared(self, chosen: int, free: int, doubtful: int, rails: Rails = NO_RAILS) -> int:
        """Return the chosen GPUs, exchanged for free ones that nothing else tells apart: sound ones, on better rails."""

        def last(i: int) -> tuple[bool, tuple[int, int], bool, int]:
            return bool(doubtful >> i & 1), rails.cost(1 << i), not chosen >> i & 1, i

        for group in self._alike if chosen & doubtful or rails is not NO_RAILS else ():
            best = sorted(members_of(group & (free | chosen)), key=last)[: (group & chosen).bit_count()]
            chosen = chosen & ~group | sum(1 << i for i in best)
        return chosen

    def on_rails_of(self, gpus: int) -> int:
        """Return the GPUs that share a NIC with any of these."""
        found = 0
        for i, rail in enumerate(self._rails):
            found |= rail if gpus >> i & 1 else 0
        return found

    def cut_gb_per_s(self, chosen: int, free: int) -> float:
        """Return the sum of the hops between the chosen GPUs and the free ones that stay behind."""
        left = members_of(free & ~chosen)
        return sum(self.wiring.hop_gb_per_s[i][j] for i in members_of(chosen) for j in left)


def _keep(known: dict[Key, Answer], key: Key, answer: Answer) -> Answer:
    """Remember an answer, and where there are too many that one alone; returns it."""
    if len(known) >= MAX_ANSWERS:
        known.clear()
    known[key] = answer
    return answer


def _numa_nodes(node: NodeTopology) -> tuple[int, ...]:
    """Return the GPUs of each NUMA node as masks; what is not known to be near counts as another, by paths and by name."""
    near = [1 << i for i in range(len(node))]
    for (i, j), link in node.pairs.items():
        if (node.path(i, j) if link.path is None else link.path) <= PciePath.NODE:
            near[i] |= 1 << j
            near[j] |= 1 << i
    found: dict[tuple[int, int | None], int] = {}
    for i, (mask, gpu) in enumerate(zip(near, node.gpus, strict=True)):
        found[mask, gpu.numa_node] = found.get((mask, gpu.numa_node), 0) | 1 << i
    return tuple(found.values())
