"""Which pods to move so that one that waits fits, or a gang. Every pod that moves has its new place in the same plan.

For one pod at most two move, and all of them from the node that it gets. Of each node its cheapest pods are tried. On one or two
nodes with at most twelve such pods each, no cheaper plan of two moves from one node exists. For a gang at most eight pods move.

Pods that restart together move together, wherever they are. They count as one of the two, and as their number of the eight.

A pod moves only for one of a greater `Size`. This order is strict, so pods never move each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import chain, combinations
from typing import Final

from extender.cluster.candidates.holds import Held
from extender.planning.gangs import Places, place_unit
from extender.planning.leaving import Leaving, after
from extender.planning.planned_nodes import HostDemand, PlannedNodes
from extender.planning.units import Assignment, PendingPod, Unit
from topology.effort import Search
from topology.placement.verdict import Placement
from topology.request.domains import GroupRequest
from topology.request.gpu_request import GpuRequest, Size

MOST_MOVES: Final = 2
CHEAPEST: Final = 12
"""Pods of one node of which sets are tried; those that restart together count as one."""
DECIDED_AT_ONCE: Final = 8
"""Sets of pods of one node, in one step."""
MOST_MOVES_FOR_GANG: Final = 8
"""Also for one pod, where pods move that restart together."""
TRIED_FOR_GANG: Final = 16
"""Pods in the way of a gang, at most. The search tries of each whether it can stay."""
GROUPED_AT_ONCE: Final = 256
"""Pods, in one step: about a millisecond."""
TRIED: Final = 256
"""Sets of pods for which new places are looked for, the cheapest first."""
COLLECTED: Final = 4 * TRIED
"""Sets before the dearest are dropped: to rank so many takes a millisecond or two, and a fleet has hundreds of thousands."""


@dataclass(frozen=True, slots=True)
class MovablePod:
    """A pod that may be moved."""

    wanted: PendingPod
    """What it asks for at its new place."""
    node: str
    held: Held
    """All that it holds; nobody else holds any of it."""
    cost_gpu_seconds: float
    """What is lost if it moves."""
    restart_group: str = ""
    """What it has in common with the pods that move with it; empty: it moves alone."""
    group: GroupRequest | None = None
    """What the pods that move together ask of each other's places."""

    @property
    def uid(self) -> str:
        """The pod's identity."""
        return self.wanted.pod.metadata.uid

    @property
    def moves_as(self) -> str:
        """What is equal of pods that move together."""
        return self.restart_group or self.uid


_Together = tuple[MovablePod, ...]
"""Pods that move together or not at all."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Who moves where, and what this makes room for."""

    targets: tuple[Assignment, ...]
    """Where the pod that waits is to go, or each member of a gang."""
    moves: tuple[tuple[MovablePod, Assignment], ...]
    gpus: float
    """The GPUs that it makes room for, and parts of them: of an elastic gang perhaps fewer than all."""

    @property
    def cost_gpu_seconds(self) -> float:
        """What all moves cost."""
        return _cost(pod for pod, _ in self.moves)

    @property
    def nodes(self) -> list[str]:
        """The nodes that pods leave, in alphabetical order."""
        return sorted({pod.node for pod, _ in self.moves})


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A set of pods without which the waiting pod fits on a node."""

    pods: tuple[MovablePod, ...]
    score: float
    node: str


def plan_room(
    nodes: PlannedNodes,
    places_of: Callable[[Unit], Places],
    unit: Unit,
    movable: Iterable[MovablePod],
    worth_gpu_seconds: float,
    may_go_together: Callable[[Sequence[MovablePod]], bool],
) -> Search[MovePlan | None]:
    """Return a plan that makes room for a pod or a gang; see `plan_moves` and `plan_moves_for_gang`."""
    if unit.is_gang:
        return plan_moves_for_gang(nodes, places_of(unit), unit, movable, worth_gpu_seconds, may_go_together, places_of)
    return plan_moves(nodes, unit.members[0], movable, worth_gpu_seconds, may_go_together, places_of)


def plan_moves(
    nodes: PlannedNodes,
    waiting: PendingPod,
    movable: Iterable[MovablePod],
    worth_gpu_seconds: float,
    may_go_together: Callable[[Sequence[MovablePod]], bool] = lambda _: True,
    places_of: Callable[[Unit], Places] = lambda _: {},
) -> Search[MovePlan | None]:
    """Return the cheapest plan that makes room for a pod; `None` where there is none that costs less than it brings.

    Args:
        nodes: As they are, and as all that is planned will make them.
        waiting: The pod without room.
        movable: Pods that may move. Those as large as the waiting one, or larger, are left out, and what moves with them.
        worth_gpu_seconds: What it is worth that the waiting pod starts now on whole GPUs; a part of a GPU is worth that part.
        may_go_together: Whether nothing else forbids to evict all of these at one time.
        places_of: Returns the nodes where pods that move together may go, and where they stand.

    """
    for candidate in (yield from _cheapest(nodes, waiting, movable, worth_gpu_seconds, may_go_together)):
        plan = yield from _placed(nodes, waiting, candidate, places_of)
        if plan is not None and _is_worth(plan, waiting.gpus, worth_gpu_seconds):
            return plan
        yield
    return None


def plan_moves_for_gang(
    nodes: PlannedNodes,
    places: Places,
    gang: Unit,
    movable: Iterable[MovablePod],
    worth_gpu_seconds: float,
    may_go_together: Callable[[Sequence[MovablePod]], bool] = lambda _: True,
    places_of: Callable[[Unit], Places] = lambda _: {},
) -> Search[MovePlan | None]:
    """Return a plan that makes room for a whole gang; `None` where none is found that costs less than it brings.

    On each node the cheapest pods are chosen, at most two, without which one more member fits there. Nodes are taken in the order
    of this cost until the gang fits. Then each pod stays without which it fits, too, the dearest first. A cheaper plan may exist.

    Pods as large as the largest member, or larger, are left out. `places` are the nodes where the gang may go, and where
    they stand. A part of the gang is worth its share. The other arguments are those of `plan_moves`.
    """
    largest = max(gang.members, key=lambda member: member.request.size)
    cheapest = yield from _cheapest(nodes, largest, movable, worth_gpu_seconds, may_go_together, places, of_node=1)
    leaving = yield from _in_the_way(nodes, places, gang, cheapest)
    for together in sorted(_together(leaving), key=lambda pods: -_cost(pods)):
        rest = [pod for pod in leaving if pod.moves_as != together[0].moves_as]
        if (yield from _room(nodes, places, gang, rest)):
            leaving = rest
    if not leaving or len(leaving) > MOST_MOVES_FOR_GANG or not may_go_together(leaving):
        return None
    later = yield from _without(nodes, leaving)
    targets = yield from place_unit(later, places, gang, enters=True)
    moves = yield from _new_places(later, leaving, places_of)
    made = _made(nodes, targets, moves) if targets and moves else None
    return made if made and _is_worth(made, gang.gpus, worth_gpu_seconds) else None


def _made(
    nodes: PlannedNodes, targets: tuple[Assignment, ...], moves: tuple[tuple[MovablePod, Assignment], ...]
) -> MovePlan:
    return MovePlan(targets, moves, sum(nodes.gpus_of(target.node, target.held) for target in targets))


def _is_worth(plan: MovePlan, wanted_gpus: int, worth_gpu_seconds: float) -> bool:
    """Whether a plan costs at most what it brings, if this is the worth of so many GPUs."""
    return plan.cost_gpu_seconds <= worth_gpu_seconds * plan.gpus / wanted_gpus


def _together(pods: Iterable[MovablePod]) -> list[_Together]:
    """Return the pods by what moves together, in their order."""
    together = dict[str, list[MovablePod]]()
    for pod in pods:
        together.setdefault(pod.moves_as, []).append(pod)
    return [*map(tuple, together.values())]


def _by_node(
    nodes: PlannedNodes, movable: Iterable[MovablePod], waiting: PendingPod, among: Container[str] | None
) -> Search[dict[str, list[_Together]]]:
    """Return the pods that are smaller than the waiting one, on the nodes where what they hold may serve it."""
    size, looked_at = waiting.request.size, 0
    together, by_node = dict[str, list[MovablePod]](), dict[str, list[_Together]]()
    worth = dict[tuple[str, int], tuple[int, int]]()
    """By node, and how many pods may leave a GPU."""
    for number, pod in enumerate(movable):
        if number % GROUPED_AT_ONCE == GROUPED_AT_ONCE - 1:
            yield
        together.setdefault(pod.moves_as, []).append(pod)
    for pods in map(tuple, together.values()):
        looked_at += len(pods)
        if looked_at >= GROUPED_AT_ONCE:
            looked_at = 0
            yield
        if not all(pod.wanted.request.size < size for pod in pods):
            continue
        most_leave = MOST_MOVES if len(pods) == 1 else MOST_MOVES_FOR_GANG
        for node in dict.fromkeys(pod.node for pod in pods):
            if node in waiting.avoided or not (among is None or node in among):
                continue
            key, held = (node, most_leave), _held(pods, node)
            if key not in worth:
                worth[key] = nodes.worth_giving_back(node, waiting.request, most_leave)
            devices, shared = worth[key]
            if held.gpus & devices or (held.shares and held.touched & shared):
                by_node.setdefault(node, []).append(pods)
    return by_node


def _sets(node: str, movable: Sequence[_Together]) -> Iterator[_Together]:
    """Yield sets of pods, the cheapest of a node, each with all that move with them."""

    def rank(pods: _Together) -> tuple[float, int, int]:
        gpus = _held(pods, node).touched
        return _cost(pods), gpus.bit_count(), gpus

    cheapest = sorted(movable, key=rank)[:CHEAPEST]
    for some in chain.from_iterable(combinations(cheapest, count) for count in range(1, MOST_MOVES + 1)):
        pods = tuple(chain.from_iterable(some))
        if len(pods) <= MOST_MOVES_FOR_GANG:
            yield pods


def _cheapest(
    nodes: PlannedNodes,
    waiting: PendingPod,
    movable: Iterable[MovablePod],
    worth_gpu_seconds: float,
    may_go_together: Callable[[Sequence[MovablePod]], bool],
    among: Container[str] | None = None,
    of_node: int | None = None,
) -> Search[list[_Candidate]]:
    """Return the best candidates in their order, at most `TRIED`.

    Of all nodes, or those in `among`, and `of_node` of each of them; `None`: all.
    """
    best = list[_Candidate]()
    for node, pods in (yield from _by_node(nodes, movable, waiting, among)).items():
        within = (some for some in _sets(node, pods) if _cost(some) <= worth_gpu_seconds)
        candidates = yield from _candidates(nodes, node, within, waiting.request, may_go_together)
        best += sorted(candidates, key=_rank)[:of_node]
        if len(best) > COLLECTED:
            best = nsmallest(TRIED, best, key=_rank)
        yield
    return nsmallest(TRIED, best, key=_rank)


def _candidates(
    nodes: PlannedNodes,
    node: str,
    sets: Iterable[tuple[MovablePod, ...]],
    request: GpuRequest,
    may_go_together: Callable[[Sequence[MovablePod]], bool],
) -> Search[list[_Candidate]]:
    candidates = list[_Candidate]()
    for number, pods in enumerate(sets):
        if number % DECIDED_AT_ONCE == DECIDED_AT_ONCE - 1:
            yield
        if not may_go_together(pods):
            continue
        verdict = nodes.decide_after(node, _held(pods, node), request)
        if isinstance(verdict, Placement):
            candidates.append(_Candidate(pods, verdict.score, node))
    return candidates


def _in_the_way(
    nodes: PlannedNodes, places: Places, gang: Unit, candidates: Sequence[_Candidate]
) -> Search[list[MovablePod]]:
    """Take as few of these nodes, in their order, as give a gang room; return the pods in its way there. Empty: no room."""

    def first(count: int) -> list[MovablePod]:
        return [*{pod.uid: pod for candidate in candidates[:count] for pod in candidate.pods}.values()]

    low, high = 0, len(candidates)
    targets = yield from _room(nodes, places, gang, first(high))
    while targets and low + 1 < high:
        middle = (low + high) // 2
        fewer = yield from _room(nodes, places, gang, first(middle))
        targets, low, high = (fewer, low, middle) if fewer else (targets, middle, high)
    taken = dict[str, int]()
    for target in targets:
        taken[target.node] = taken.get(target.node, 0) | target.gpus
    in_the_way = {pod.moves_as for pod in first(high) if pod.held.touched & taken.get(pod.node, 0)}
    leaving = [pod for pod in first(high) if pod.moves_as in in_the_way]
    return leaving if len(leaving) <= TRIED_FOR_GANG else []


def _room(
    nodes: PlannedNodes, places: Places, gang: Unit, leaving: Iterable[MovablePod]
) -> Search[tuple[Assignment, ...]]:
    """Return where a gang goes once these pods have left; empty: it does not fit."""
    later = yield from _without(nodes, leaving)
    return (yield from place_unit(later, places, gang, enters=True))


def _placed(
    nodes: PlannedNodes, waiting: PendingPod, candidate: _Candidate, places_of: Callable[[Unit], Places]
) -> Search[MovePlan | None]:
    """Give the waiting pod its place, and then each moved pod another one, the largest first."""
    later = yield from _without(nodes, candidate.pods)
    there = frozenset({candidate.node})
    place = yield from later.place(waiting.pod, waiting.request, waiting.avoided, among=there)
    if place is None:
        return None
    moves = yield from _new_places(later, candidate.pods, places_of)
    return _made(nodes, (Assignment(waiting.pod, waiting.request, *place),), moves) if moves else None


def _without(nodes: PlannedNodes, pods: Iterable[MovablePod]) -> Search[PlannedNodes]:
    """Return the nodes as they will be once these pods have left."""
    return (yield from after(nodes, (Leaving(pod.node, pod.held, HostDemand.of(pod.wanted.pod)) for pod in pods)))


def _new_places(
    later: PlannedNodes, pods: Sequence[MovablePod], places_of: Callable[[Unit], Places]
) -> Search[tuple[tuple[MovablePod, Assignment], ...] | None]:
    """Give each pod that moves another place, the largest first; `None` where one has none.

    One that moves with others comes back to what it has, where nobody else gets it.
    """
    mark, kept = later.mark(), dict[str, Assignment]()
    for pod in pods:
        wanted = pod.wanted
        if pod.restart_group and (placement := later.place_on(wanted.pod, wanted.request, pod.node, pod.held)):
            kept[pod.uid] = Assignment(wanted.pod, wanted.request, pod.node, placement)
            yield
    places = yield from _places(later, pods, kept, places_of)
    if kept and not places:
        yield from later.undo(mark)
        places = yield from _places(later, pods, {}, places_of)
    together = chain.from_iterable(_together(pods))
    return tuple((pod, places[pod.uid]) for pod in together) if places else None


def _places(
    later: PlannedNodes, pods: Iterable[MovablePod], kept: Mapping[str, Assignment], places_of: Callable[[Unit], Places]
) -> Search[dict[str, Assignment]]:
    """Return the places of all pods by UID, those that are kept included; empty where one has none."""
    placed = dict(kept)
    largest_first = sorted(_together(pods), key=_largest, reverse=True)
    for together in largest_first:
        members = tuple(pod.wanted for pod in together if pod.uid not in kept)
        if not members:
            continue
        unit = replace(Unit.alone(members[0]), members=members, group=together[0].group)
        places = places_of(unit) if unit.group else {}
        near = {places[pod.node] for pod in together if pod.uid in kept and pod.node in places}
        unit = replace(unit, placed=tuple(sorted(near, key=str)))
        assignments = yield from place_unit(later, places, unit, enters=False)
        if not assignments:
            return {}
        placed |= {place.pod.metadata.uid: place for place in assignments}
        yield
    return placed


def _rank(candidate: _Candidate) -> tuple[float, int, float, str]:
    """Return a key: the least cost first, then the fewest GPUs, then the best placement."""
    gpus = sum(pod.held.touched.bit_count() for pod in candidate.pods)
    return _cost(candidate.pods), gpus, -candidate.score, candidate.node


def _cost(pods: Iterable[MovablePod]) -> float:
    return sum(pod.cost_gpu_seconds for pod in pods)


def _largest(pods: _Together) -> Size:
    return max(pod.wanted.request.size for pod in pods)


def _held(pods: Sequence[MovablePod], node: str) -> Held:
    if len(pods) == 1:
        return pods[0].held
    return Held.all_of(pod.held for pod in pods if pod.node == node)
