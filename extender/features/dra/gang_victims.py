"""Chooses the pods that end so that a whole gang gets devices; if not all of it would, nobody ends. No I/O.

The planner places the gang on the nodes as they would be without other pods. First the least priority is searched up to which
pods have to end, then the fewest nodes. Then pods stay where the gang fits in spite of them: first all pods of a node, then
single ones, the most important first. A choice of fewer pods may exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.candidates.holds import Held
from extender.cluster.node_view import NodeView, Owner
from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.state import ClusterState
from extender.features.dra.demands import Demands
from extender.features.dra.victims import (
    DeviceVictims,
    NoVictims,
    comes_before,
    demand_of,
    fits_without,
    freed,
    is_leaving,
    may_end,
    refusal_for,
    with_consumers,
)
from extender.kit.clock import Instant
from extender.planning.gangs import Places, has_room, place_unit
from extender.planning.leaving import Leaving, after
from extender.planning.planned_nodes import HostDemand, PlannedNodes
from extender.planning.queue import PlacesOfUnits
from extender.planning.units import Assignment, Unit
from topology.effort import Search
from topology.request.gpu_request import GpuRequest

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
    keeps: int
    """What they keep from being free, as a mask; others may keep a part of it, too."""
    demand: HostDemand

    @property
    def uids(self) -> set[str]:
        return {pod.uid for pod in self.pods}


@dataclass(frozen=True, slots=True)
class _Node:
    """A node where victims may help, or pods that are ending."""

    view: NodeView
    taken: Mapping[Owner, int]
    """What each pod there keeps from being free."""
    ending: tuple[str, ...]
    demand: HostDemand
    """Of the ending pods."""
    together: tuple[_Together, ...]

    def without(self, victims: Iterable[_Together]) -> Leaving:
        """Return what the node gets back once these are gone, and all that are ending.

        A GPU of which several pods have MIG devices is free without all of them, and not sooner.
        """
        gone, demand = {*self.ending}, self.demand
        for together in victims:
            gone |= together.uids
            demand += together.demand
        return Leaving(self.view.name, Held(freed(self.view, gone, self.taken)), demand)

    def capacity(self, request: GpuRequest, priority: int) -> int:
        """Return how many devices that a pod requests are free without pods up to a priority."""
        gives_back = self.without(together for together in self.together if together.priority <= priority)
        free = self.view.shape.free | gives_back.held.gpus
        return (free & self.view.shape.devices_for(request)).bit_count()


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
            taken = view.taken()
            together = dict[frozenset[str], _Together]()
            for held in view.holdings:
                if priority_of(held.pod.pod) >= self.unit.priority:
                    continue
                yield
                refusal = self._refusal(held.pod, budgets)
                why = refusal or why
                if not refusal and may_end(self.state, self.demands, held.pod, self.unit.priority):
                    victims = self._together(view, taken, held.pod)
                    if peers.isdisjoint(victims.uids):  # without one of its own pods the gang would be incomplete
                        together[frozenset(victims.uids)] = victims
            gone = {*ending, *(uid for victims in together.values() for uid in victims.uids)}
            if not gone:
                continue
            free = view.shape.free | freed(view, gone, taken)
            uid, alternative = first.pod.metadata.uid, first.request.alternative
            while (suits := self.demands.fits_on(uid, view, free, alternative)) is None:
                yield  # the next look gets further
            if suits:
                demand = demand_of(self.state, view, ending)
                nodes.append(_Node(view, taken, ending, demand, tuple(together.values())))
        return nodes, why

    def _together(self, view: NodeView, taken: Mapping[Owner, int], pod: GpuPod) -> _Together:
        pods = with_consumers(self.state, self.demands, (pod,))
        uids = [pod.uid for pod in pods]
        keeps = reduce(or_, (taken.get(uid, 0) for uid in uids), 0)
        priority = max(priority_of(pod.pod) for pod in pods)
        return _Together(view.name, pods, priority, keeps, demand_of(self.state, view, uids))

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
        if targets := (yield from self._room(places, nodes, lambda _: False)):
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
        targets = yield from self._room(places, nodes, frozenset(victims).__contains__)
        ending = _ending(nodes, targets)
        pods = {pod.uid: pod for together in victims for pod in together.pods}
        fits = fits_without(self.state, self.demands, self.nodes, targets, {*ending, *pods})
        if not targets or not (yield from fits):
            return NoVictims.NONE
        return DeviceVictims(self.unit, targets, tuple(pods.values()), ending)

    def _room(
        self, places: Places, nodes: Iterable[_Node], ends: Callable[[_Together], bool]
    ) -> Search[tuple[Assignment, ...]]:
        """Return where the gang goes once pods end, and those that are ending are gone; empty: it does not fit."""
        leaving = list[Leaving]()
        for number, node in enumerate(nodes):
            if number % CAPACITIES_AT_ONCE == CAPACITIES_AT_ONCE - 1:
                yield
            victims = [together for together in node.together if ends(together)]
            if victims or node.ending:
                leaving.append(node.without(victims))
        later = yield from after(self.nodes, leaving)
        return (yield from place_unit(later, places, self.unit, enters=True))

    def _least_priority(self, places: Places, nodes: Sequence[_Node]) -> Search[int | None]:
        """Return up to which priority pods have to end; `None`: there is no room without all of them, either."""
        levels = sorted({together.priority for node in nodes for together in node.together})
        low, high = 0, len(levels)
        while low < high:
            middle = (low + high) // 2 if high < len(levels) else high - 1  # all of them first
            if (yield from self._room(places, nodes, _up_to(levels[middle]))):
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
            ranks.append((-node.capacity(self.unit.members[0].request, up_to), len(node.together), node.view.name))
        largest = [node for _, node in sorted(zip(ranks, nodes, strict=True), key=lambda pair: pair[0])]
        yield
        low, high = 0, len(largest)
        targets = yield from self._room(places, nodes, _up_to(up_to))
        while low + 1 < high:
            middle = (low + high) // 2
            some = frozenset(node.view.name for node in largest[:middle])
            fewer = yield from self._room(places, nodes, _up_to(up_to, some))
            targets, low, high = (fewer, low, middle) if fewer else (targets, middle, high)
        taken = Counter[str]()
        for target in targets:
            taken[target.node] |= target.gpus
        on_nodes = (together for node in largest[:high] if node.view.name in taken for together in node.together)
        victims = [*filter(_up_to(up_to), on_nodes)]
        if len(victims) <= MOST_VICTIMS:
            return victims
        return [together for together in victims if together.keeps & taken[together.node]]

    def _without_spared(
        self, places: Places, nodes: Sequence[_Node], victims: list[_Together]
    ) -> Search[list[_Together]]:
        """Spare whole nodes, and then each pod, where the gang fits in spite of it."""
        by_node = dict[str, list[_Together]]()
        for together in victims:
            by_node.setdefault(together.node, []).append(together)
        dearest = sorted(by_node.values(), key=lambda some: (-max(each.priority for each in some), -len(some)))
        alone = sorted(victims, key=lambda each: (-each.priority, each.keeps.bit_count()))
        for some in (*(dearest if len(dearest) > 1 else ()), *([each] for each in alone)):
            rest = [together for together in victims if together not in some]
            if len(rest) < len(victims) and (yield from self._room(places, nodes, frozenset(rest).__contains__)):
                victims = rest
        return victims


def _up_to(priority: int, names: Container[str] | None = None) -> Callable[[_Together], bool]:
    """Return whether pods end up to a priority, of all nodes or of some."""
    return lambda together: together.priority <= priority and (names is None or together.node in names)


def _ending(nodes: Iterable[_Node], targets: Iterable[Assignment]) -> tuple[str, ...]:
    """Return the pods that are ending where the gang goes."""
    wanted = {target.node for target in targets}
    return tuple(uid for node in nodes if node.view.name in wanted for uid in node.ending)
