"""Which pods to move so that one that waits fits, at the least cost. Every pod that moves has its new place in the same plan.

At most two pods move, and all of them from the node that the waiting pod gets. Of each node its cheapest pods are tried.
On one or two nodes with at most twelve such pods each, no cheaper plan of two moves from one node exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Final

from extender.planning.planned_nodes import NO_DEMAND, HostDemand, PlannedNodes
from extender.planning.units import Assignment, PendingPod
from topology.effort import Search
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

MOST_MOVES: Final = 2
CHEAPEST: Final = 12
"""Pods of one node of which sets are tried."""
DECIDED_AT_ONCE: Final = 8
"""Sets of pods of one node, in one step."""
TRIED: Final = 256
"""Sets of pods for which new places are looked for, the cheapest first."""


@dataclass(frozen=True, slots=True)
class MovablePod:
    """A pod that may be moved."""

    wanted: PendingPod
    """What it asks for at its new place."""
    node: str
    gpus: int
    """What it holds, as a mask over positions."""
    cost_gpu_seconds: float
    """What is lost if it moves."""

    @property
    def uid(self) -> str:
        """The pod's identity."""
        return self.wanted.pod.metadata.uid


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Who moves where, and what this makes room for."""

    target: Assignment
    """Where the pod that waits is to go."""
    moves: tuple[tuple[MovablePod, Assignment], ...]

    @property
    def cost_gpu_seconds(self) -> float:
        """What all moves cost."""
        return sum(pod.cost_gpu_seconds for pod, _ in self.moves)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A set of pods of one node without which the waiting pod fits there."""

    pods: tuple[MovablePod, ...]
    score: float

    @property
    def node(self) -> str:
        return self.pods[0].node

    @property
    def rank(self) -> tuple[float, int, float, str]:
        """The least cost first, then the fewest GPUs, then the best placement."""
        gpus = sum(pod.gpus.bit_count() for pod in self.pods)
        return _cost(self.pods), gpus, -self.score, self.node


def plan_moves(
    nodes: PlannedNodes,
    waiting: PendingPod,
    movable: Iterable[MovablePod],
    worth_gpu_seconds: float,
    may_go_together: Callable[[Sequence[MovablePod]], bool] = lambda _: True,
) -> Search[MovePlan | None]:
    """Return the cheapest plan that makes room for a pod; `None` where there is none that costs less than it brings.

    Args:
        nodes: As they are, and as all that is planned will make them.
        waiting: The pod without room.
        movable: Pods that may move, each with fewer GPUs than the waiting one, or it is left out.
        worth_gpu_seconds: What it is worth that the waiting pod starts now.
        may_go_together: Whether nothing else forbids to evict all of these at one time.

    """
    by_node = dict[str, list[MovablePod]]()
    for pod in movable:
        if pod.gpus.bit_count() < waiting.gpus and pod.node not in waiting.avoided:
            by_node.setdefault(pod.node, []).append(pod)
    candidates = list[_Candidate]()
    for node, pods in by_node.items():
        within = (some for some in _sets(pods) if _cost(some) <= worth_gpu_seconds)
        candidates += yield from _candidates(nodes, node, within, waiting.request, may_go_together)
        yield
    for candidate in sorted(candidates, key=lambda candidate: candidate.rank)[:TRIED]:
        plan = yield from _placed(nodes, waiting, candidate)
        if plan is not None:
            return plan
        yield
    return None


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a pod that moves is about to give back."""

    node: str
    gpus: int
    """A mask over positions."""
    demand: HostDemand


def still_fits(nodes: PlannedNodes, places: Sequence[Assignment], leaving: Iterable[Leaving]) -> Search[bool]:
    """Return whether the rest of a plan still gives all of its pods what it promised them.

    Args:
        nodes: As they are, and as all that is planned will make them, without what is held for this plan.
        places: What the plan has promised, and nobody has taken yet.
        leaving: What pods of the plan will give back.

    """
    freed, released = dict[str, int](), dict[str, HostDemand]()
    for pod in leaving:
        freed[pod.node] = freed.get(pod.node, 0) | pod.gpus
        released[pod.node] = released.get(pod.node, NO_DEMAND) + pod.demand
    later = yield from nodes.later(freed, released)
    return all(later.place_on(place.pod, place.request, place.node, place.gpus) for place in places)


def _sets(pods: Sequence[MovablePod]) -> Iterator[tuple[MovablePod, ...]]:
    cheapest = sorted(pods, key=lambda pod: (pod.cost_gpu_seconds, pod.gpus.bit_count(), pod.gpus))[:CHEAPEST]
    return chain.from_iterable(combinations(cheapest, count) for count in range(1, MOST_MOVES + 1))


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
        verdict = nodes.decide_after(node, _gpus(pods), request)
        if isinstance(verdict, Placement):
            candidates.append(_Candidate(pods, verdict.score))
    return candidates


def _placed(nodes: PlannedNodes, waiting: PendingPod, candidate: _Candidate) -> Search[MovePlan | None]:
    """Give the waiting pod its place, and then each moved pod another one, the largest first."""
    released = sum((HostDemand.of(pod.wanted.pod) for pod in candidate.pods), NO_DEMAND)
    node = candidate.node
    later = yield from nodes.later({node: _gpus(candidate.pods)}, {node: released})
    target = yield from _assigned(later, waiting, frozenset({node}))
    if target is None:
        return None
    moves = list[tuple[MovablePod, Assignment]]()
    for pod in sorted(candidate.pods, key=lambda pod: -pod.gpus.bit_count()):
        place = yield from _assigned(later, pod.wanted, None)
        if place is None:
            return None
        moves.append((pod, place))
    return MovePlan(target, tuple(moves))


def _assigned(nodes: PlannedNodes, wanted: PendingPod, among: frozenset[str] | None) -> Search[Assignment | None]:
    place = yield from nodes.place(wanted.pod, wanted.request, wanted.avoided, among=among)
    return Assignment(wanted.pod, wanted.request, *place) if place else None


def _cost(pods: Iterable[MovablePod]) -> float:
    return sum(pod.cost_gpu_seconds for pod in pods)


def _gpus(pods: Iterable[MovablePod]) -> int:
    return sum(pod.gpus for pod in pods)
