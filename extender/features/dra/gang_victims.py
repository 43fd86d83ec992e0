"""Chooses the pods that end so that a whole gang gets devices; if not all of it would, nobody ends. No I/O.

The planner places the gang on the nodes as they would be without other pods. First the least priority is searched up to which
pods have to end, then the fewest nodes. Then pods stay where the gang fits in spite of them: first all pods of a node, then
single ones, the most important first. A choice of fewer pods may exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.state import ClusterState
from extender.features.dra.demands import Demands
from extender.features.dra.victims import (
    DeviceVictims,
    NoVictims,
    comes_before,
    fits_without,
    freed,
    is_leaving,
    leaving_from,
    may_end,
    refusal_for,
    with_consumers,
)
from extender.kit.clock import Instant
from extender.planning.gangs import Places, has_room, place_unit
from extender.planning.leaving import Leaving, after
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.queue import PlacesOfUnits
from extender.planning.units import Assignment, Unit
from topology.effort import Search

MOST_VICTIMS: Final = 64
"""Pods in the way of a gang. The search tries of each whether it can stay."""
ATTEMPTS: Final = 8
"""Searches for one gang, each without more pods that a budget protects."""
NODES_AT_ONCE: Final = 16
"""In one step: about a millisecond."""
CAPACITIES_AT_ONCE: Final = 128
"""The same of nodes of which the GPUs are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class _Together:
    """A pod, and others that use its claims: they end together."""

    node: str
    pods: tuple[GpuPod, ...]
    priority: int
    """The highest of theirs."""
    gives_back: Leaving

    @property
    def uids(self) -> set[str]:
        return {pod.uid for pod in self.pods}


@dataclass(frozen=True, slots=True)
class _Node:
    """A node where victims may help, or pods that are ending."""

    view: NodeView
    ending: tuple[str, ...]
    gives_back: Leaving
    """What the ending pods do."""
    together: tuple[_Together, ...]

    def capacity(self, priority: int) -> int:
        """Return how many GPUs are free without pods up to a priority."""
        free = self.view.shape.free | self.gives_back.held.gpus
        for victims in self.together:
            free |= victims.gives_back.held.gpus if victims.priority <= priority else 0
        return free.bit_count()


@dataclass(frozen=True, slots=True)
class GangVictimSearch:
    """One search, as of one moment.

    Args:
        state: The cluster.
        demands: What pods request by claims.
        nodes: The nodes, without what is held for other pods.
        unit: The gang without room.
        now: This moment.
        refusal_of: Returns why the eviction of a pod was refused lately, by its UID; `None`: it was not.

    """

    state: ClusterState
    demands: Demands
    nodes: PlannedNodes
    unit: Unit
    now: Instant
    refusal_of: Callable[[str], NoVictims | None] = lambda _: None
    _may_use: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Budget that a choice has exceeded → UIDs of the pods that may use it up."""

    def run(self) -> Search[DeviceVictims | NoVictims]:
        """Return the victims, or why there are none."""
        if not self.state.budgets.known:
            return NoVictims.UNREAD
        places_of, budgets = PlacesOfUnits(self.state), BudgetsOfPods(self.state.budgets)
        if (yield from has_room(self.nodes, places_of, self.unit)):
            return NoVictims.ROOM
        places = places_of(self.unit)
        for _ in range(ATTEMPTS):
            nodes, why = yield from self._nodes(places, budgets)
            victims = yield from self._among(places, nodes)
            if victims is NoVictims.NONE:
                return why
            if isinstance(victims, NoVictims) or not self._exceeds(victims.pods, budgets):
                return victims
        return NoVictims.BUDGETS

    def _nodes(self, places: Places, budgets: BudgetsOfPods) -> Search[tuple[list[_Node], NoVictims]]:
        """Return the nodes where pods may end, and why some of those of lower priority may not."""
        nodes, why, first = list[_Node](), NoVictims.NONE, self.unit.members[0]
        peers = {pod.uid for pod in self.state.indexes.groups.beside(first.pod.metadata.uid)}
        for number, view in enumerate([*self.state.views.values()]):
            if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                yield
            if view.name not in places or not view.by_claim or view.shape.closed:
                continue
            ending = tuple(held.pod.uid for held in view.holdings if is_leaving(held.pod, self.now))
            together = dict[frozenset[str], _Together]()
            for held in view.holdings:
                if priority_of(held.pod.pod) >= self.unit.priority:
                    continue
                yield
                refusal = self._refusal(held.pod, budgets)
                why = refusal or why
                if not refusal and may_end(self.state, self.demands, held.pod, self.unit.priority):
                    victims = self._together(view, held.pod)
                    if peers.isdisjoint(victims.uids):  # without one of its own pods the gang would be incomplete
                        together[frozenset(victims.uids)] = victims
            gone = {*ending, *(uid for victims in together.values() for uid in victims.uids)}
            if not gone:
                continue
            free = view.shape.free | freed(view, gone)
            uid, alternative = first.pod.metadata.uid, first.request.alternative
            while (suits := self.demands.fits_on(uid, view, free, alternative)) is None:
                yield  # the next look gets further
            if suits:
                nodes.append(_Node(view, ending, leaving_from(self.state, view, ending), tuple(together.values())))
        return nodes, why

    def _together(self, view: NodeView, pod: GpuPod) -> _Together:
        pods = with_consumers(self.state, self.demands, (pod,))
        gives_back = leaving_from(self.state, view, (pod.uid for pod in pods))
        return _Together(view.name, pods, max(priority_of(pod.pod) for pod in pods), gives_back)

    def _refusal(self, pod: GpuPod, budgets: BudgetsOfPods) -> NoVictims | None:
        """Return why a pod may not be evicted, or one that uses its claims."""
        for victim in with_consumers(self.state, self.demands, (pod,)):
            for budget in budgets.of(victim.pod.metadata):
                may_use = self._may_use.get((budget.metadata.namespace, budget.metadata.name))
                if budget.allowed <= 0 or (may_use is not None and victim.uid not in may_use):
                    return NoVictims.BUDGETS
        return refusal_for(pod, self.demands, budgets, self.refusal_of)

    def _exceeds(self, pods: Iterable[GpuPod], budgets: BudgetsOfPods) -> bool:
        """Whether these are more than a budget allows; then the most important ones alone may use it up."""
        using = dict[tuple[str, str], list[str]]()
        allowed = dict[tuple[str, str], int]()
        for pod in sorted(pods, key=lambda pod: (-priority_of(pod.pod), pod.uid)):
            for budget in budgets.of(pod.pod.metadata):
                name = budget.metadata.namespace, budget.metadata.name
                allowed[name] = budget.allowed
                using.setdefault(name, []).append(pod.uid)
        exceeded = {name: uids[: allowed[name]] for name, uids in using.items() if len(uids) > allowed[name]}
        self._may_use.update({name: set(uids) for name, uids in exceeded.items()})
        return bool(exceeded)

    def _among(self, places: Places, nodes: Sequence[_Node]) -> Search[DeviceVictims | NoVictims]:
        """Return the victims on these nodes."""
        if targets := (yield from self._room(places, nodes, ())):
            ending = _ending(nodes, targets)
            is_first = all(comes_before(self.state, self.unit.priority, uid) for uid in ending)
            return DeviceVictims(self.unit, targets, (), ending) if is_first else NoVictims.ENDING
        up_to = yield from self._least_priority(places, nodes)
        if up_to is None:
            return NoVictims.NONE
        in_the_way = yield from self._in_the_way(places, nodes, up_to)
        if len(in_the_way) > MOST_VICTIMS:
            return NoVictims.TOO_MANY
        victims = yield from self._without_spared(places, nodes, in_the_way)
        targets = yield from self._room(places, nodes, victims)
        ending = _ending(nodes, targets)
        pods = {pod.uid: pod for together in victims for pod in together.pods}
        fits = fits_without(self.state, self.demands, self.nodes, targets, {*ending, *pods})
        if not targets or not (yield from fits):
            return NoVictims.NONE
        return DeviceVictims(self.unit, targets, tuple(pods.values()), ending)

    def _room(
        self, places: Places, nodes: Iterable[_Node], victims: Iterable[_Together]
    ) -> Search[tuple[Assignment, ...]]:
        """Return where the gang goes once these pods and all that are ending are gone; empty: it does not fit."""
        ending = (node.gives_back for node in nodes if node.ending)
        later = yield from after(self.nodes, chain(ending, (together.gives_back for together in victims)))
        return (yield from place_unit(later, places, self.unit, enters=True))

    def _least_priority(self, places: Places, nodes: Sequence[_Node]) -> Search[int | None]:
        """Return up to which priority pods have to end; `None`: there is no room without all of them, either."""
        levels = sorted({together.priority for node in nodes for together in node.together})
        low, high = 0, len(levels)
        while low < high:
            middle = (low + high) // 2 if high < len(levels) else high - 1  # all of them first
            if (yield from self._room(places, nodes, _up_to(nodes, levels[middle]))):
                high = middle
            elif high == len(levels):
                return None
            else:
                low = middle + 1
        return levels[high] if levels else None

    def _in_the_way(self, places: Places, nodes: Sequence[_Node], up_to: int) -> Search[list[_Together]]:
        """Take as few nodes as give the gang room, those with the most GPUs first; return who may end there.

        Of many pods only those that have what it gets.
        """
        ranks = list[tuple[int, int, str]]()
        for number, node in enumerate(nodes):
            if number % CAPACITIES_AT_ONCE == CAPACITIES_AT_ONCE - 1:
                yield
            ranks.append((-node.capacity(up_to), len(node.together), node.view.name))
        largest = [node for _, node in sorted(zip(ranks, nodes, strict=True), key=lambda pair: pair[0])]
        yield
        low, high = 0, len(largest)
        targets = yield from self._room(places, nodes, _up_to(nodes, up_to))
        while low + 1 < high:
            middle = (low + high) // 2
            fewer = yield from self._room(places, nodes, _up_to(largest[:middle], up_to))
            targets, low, high = (fewer, low, middle) if fewer else (targets, middle, high)
        taken = Counter[str]()
        for target in targets:
            taken[target.node] |= target.gpus
        victims = [together for together in _up_to(largest[:high], up_to) if together.node in taken]
        if len(victims) <= MOST_VICTIMS:
            return victims
        return [together for together in victims if together.gives_back.held.gpus & taken[together.node]]

    def _without_spared(
        self, places: Places, nodes: Sequence[_Node], victims: list[_Together]
    ) -> Search[list[_Together]]:
        """Spare whole nodes, and then each pod, where the gang fits in spite of it."""
        by_node = dict[str, list[_Together]]()
        for together in victims:
            by_node.setdefault(together.node, []).append(together)
        dearest = sorted(by_node.values(), key=lambda some: (-max(each.priority for each in some), -len(some)))
        alone = sorted(victims, key=lambda each: (-each.priority, each.gives_back.held.gpus.bit_count()))
        for some in (*(dearest if len(dearest) > 1 else ()), *([each] for each in alone)):
            rest = [together for together in victims if together not in some]
            if len(rest) < len(victims) and (yield from self._room(places, nodes, rest)):
                victims = rest
        return victims


def _up_to(nodes: Iterable[_Node], priority: int) -> Iterator[_Together]:
    return (together for node in nodes for together in node.together if together.priority <= priority)


def _ending(nodes: Iterable[_Node], targets: Iterable[Assignment]) -> tuple[str, ...]:
    """Return the pods that are ending where the gang goes."""
    wanted = {target.node for target in targets}
    return tuple(uid for node in nodes if node.view.name in wanted for uid in node.ending)
