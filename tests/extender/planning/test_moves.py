"""The cheapest pods move, all of them have new places, and the pod that waits fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.candidates.holds import Held
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.planning import moves as moves_module
from extender.planning.leaving import Leaving, still_fits
from extender.planning.moves import (
    DECIDED_AT_ONCE,
    GROUPED_AT_ONCE,
    MOST_MOVES,
    MOST_MOVES_FOR_GANG,
    MovablePod,
    MovePlan,
    plan_moves,
    plan_moves_for_gang,
)
from extender.planning.planned_nodes import HostDemand
from extender.planning.units import Assignment, PendingPod, Unit
from tests.extender.builders import PAIRS, cluster, gpus, node, pod
from tests.extender.planning.gangs import IN_ONE_RACK, NEAR, gang, places_of, planned_nodes, racks
from tests.extender.planning.gangs import where as nodes_of
from topology.bandwidth.rings import members_of
from topology.effort import finish
from topology.node.links import Affinity
from topology.request.domains import GroupRequest
from topology.request.gpu_request import GpuRequest

PLENTY = 1e9
LINKED = GpuRequest(2, required=Affinity.NVLINK)


def pending(name: str, count: int, *, cpu: str = "", request: GpuRequest | None = None) -> PendingPod:
    return PendingPod(pod(name, count, cpu=cpu), request or GpuRequest.plain(count))


def on(name: str, where: str, *positions: int, cpu: str = "") -> Pod:
    """Return a pod with these GPUs of a node."""
    held = gpus(where, *positions, machine_name=PAIRS)
    return pod(name, len(positions), on=where, placed=held, phase="Running", cpu=cpu)


def movable(name: str, where: str, *positions: int, cost: float = 1.0, cpu: str = "") -> MovablePod:
    held = Held(sum(1 << at for at in positions))
    return MovablePod(pending(name, len(positions), cpu=cpu), where, held, cost)


def plan(
    state: ClusterState, waiting: PendingPod, *pods: MovablePod, worth_gpu_seconds: float = PLENTY
) -> MovePlan | None:
    return finish(plan_moves(planned_nodes(state), waiting, pods, worth_gpu_seconds))


def moved(made: MovePlan | None) -> dict[str, str]:
    """Return who moves where."""
    return {place.pod.metadata.name: place.node for _, place in made.moves} if made else {}


def two_nodes(*pods: Pod, cpu: str = "") -> ClusterState:
    """Return two nodes with four pairs of GPUs each."""
    return cluster(node("a", PAIRS, cpu=cpu), node("b", PAIRS, cpu=cpu), *pods)


def broken_pairs(where: str) -> list[Pod]:
    """Return pods that have one GPU of each pair of a node."""
    return [on(f"{where}{pair}", where, 2 * pair) for pair in range(4)]


def test_the_cheapest_pod_moves_and_the_pod_that_waits_gets_the_pair() -> None:
    """Every pair is broken, so nobody can have two linked GPUs, though eight are free."""
    state = two_nodes(*broken_pairs("a"), *broken_pairs("b"))
    made = plan(state, pending("w", 2, request=LINKED), movable("a1", "a", 2, cost=9), movable("b3", "b", 6, cost=5))
    assert made and (made.targets[0].node, set(made.targets[0].placement.gpus)) == ("b", {6, 7})
    assert moved(made).keys() == {"b3"}
    assert made.cost_gpu_seconds == 5


def test_nobody_moves_without_a_new_place() -> None:
    """Three GPUs are free, one on the first node, and the pod with two of them has no other two on one node."""
    state = two_nodes(on("a0", "a", 0, 1), on("a1", "a", *range(2, 7)), on("b0", "b", *range(7)))
    assert plan(state, pending("w", 3), movable("a0", "a", 0, 1)) is None


def test_nobody_moves_at_a_higher_cost_than_the_gain() -> None:
    """The move would help, and costs more."""
    state = two_nodes(*broken_pairs("a"), *broken_pairs("b"))
    waiting, pods = pending("w", 2, request=LINKED), movable("a0", "a", 0, cost=6)
    assert plan(state, waiting, pods, worth_gpu_seconds=5) is None
    assert plan(state, waiting, pods, worth_gpu_seconds=6) is not None


def test_no_pod_moves_for_one_with_as_many_gpus() -> None:
    """Else two pods could move each other for ever."""
    state = cluster(node("a", PAIRS), on("a0", "a", 0, 1), on("a1", "a", 2, 3, 4, 5, 6))
    assert plan(state, pending("w", 2, request=LINKED), movable("a0", "a", 0, 1)) is None


def test_two_pods_move_where_one_is_not_enough() -> None:
    """Six GPUs are needed, and each of two pods on the node has one."""
    state = two_nodes(on("a0", "a", 0), on("a1", "a", 1), on("a2", "a", 2), on("b0", "b", *range(6)))
    pods = [movable(f"a{at}", "a", at) for at in range(3)]
    assert len(moved(plan(state, pending("w", 7), *pods))) == 2


def test_moved_pods_need_cpu_at_their_new_places_and_leave_theirs_behind() -> None:
    """Of 8 CPUs, one node has 6 in use by the pod that moves, and the other one 5."""
    held = on("a0", "a", 0, cpu="6"), on("b0", "b", 0, cpu="5")
    state = two_nodes(*held, cpu="8")
    waiting = pending("w", 8, cpu="8")
    assert plan(state, waiting, movable("a0", "a", 0, cpu="6")) is None
    assert plan(state, waiting, movable("a0", "a", 0, cpu="3")) is None
    state = two_nodes(on("a0", "a", 0, cpu="3"), held[1], cpu="8")
    assert moved(plan(state, waiting, movable("a0", "a", 0, cpu="3"))) == {"a0": "b"}


sets = st.lists(st.integers(1, 3), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(sets, sets, st.integers(2, 6), st.randoms(use_true_random=False))
def test_no_cheaper_plan_exists_on_two_nodes(on_a: list[int], on_b: list[int], wanted: int, random: object) -> None:
    """Compared with all sets of at most two pods of one node, by their GPUs alone."""
    pods, free = list[tuple[str, str, tuple[int, ...], float]](), {"a": 8, "b": 8}
    for where, sizes in (("a", on_a), ("b", on_b)):
        for number, size in enumerate(sizes):
            if free[where] >= size:
                at = 8 - free[where]
                pods.append((f"{where}{number}", where, tuple(range(at, at + size)), float(random.randrange(1, 9))))  # type: ignore[attr-defined]
                free[where] -= size
    state = two_nodes(*(on(name, where, *positions) for name, where, positions, _ in pods))
    made = plan(state, pending("w", wanted), *(movable(n, w, *at, cost=cost) for n, w, at, cost in pods))
    assert (made.cost_gpu_seconds if made else None) == _cheapest(pods, free, wanted)


def _cheapest(pods: list[tuple[str, str, tuple[int, ...], float]], free: dict[str, int], wanted: int) -> float | None:
    costs = []
    for count in range(1, MOST_MOVES + 1):
        for some in combinations([held for held in pods if len(held[2]) < wanted], count):
            homes = {where for _, where, _, _ in some}
            if len(homes) > 1:
                continue
            (home,) = homes
            left = {**free, home: free[home] + sum(len(positions) for *_, positions, _ in some) - wanted}
            if left[home] < 0:
                continue
            sizes = sorted((len(positions) for *_, positions, _ in some), reverse=True)
            if _fit(sizes, left):
                costs.append(sum(cost for *_, cost in some))
    return min(costs, default=None)


def _fit(sizes: list[int], left: dict[str, int]) -> bool:
    if not sizes:
        return True
    return any(room >= sizes[0] and _fit(sizes[1:], {**left, where: room - sizes[0]}) for where, room in left.items())


def test_a_step_takes_few_of_the_movable_pods() -> None:
    """A fleet has tens of thousands of them."""
    looked_at = list[MovablePod]()

    def pods() -> Iterator[MovablePod]:
        for number in range(4 * GROUPED_AT_ONCE):
            looked_at.append(movable(f"m{number}", "a", 0))
            yield looked_at[-1]

    steps = plan_moves(planned_nodes(two_nodes()), pending("w", 1), pods(), PLENTY)
    in_steps = [0, *(len(looked_at) for _ in steps)]
    assert len(looked_at) == 4 * GROUPED_AT_ONCE
    assert max(later - before for before, later in pairwise(in_steps)) == GROUPED_AT_ONCE


def test_sets_of_pods_that_may_not_go_together_end_steps_as_well() -> None:
    """To look for their budgets may take long."""
    pods = [movable(f"a{at}", "a", at) for at in range(8)]
    state, looked_at = two_nodes(*(on(f"a{at}", "a", at) for at in range(8))), list[int]()

    def may_go_together(some: Sequence[MovablePod]) -> bool:
        looked_at.append(len(some))
        return False

    steps = plan_moves(planned_nodes(state), pending("w", 2), pods, PLENTY, may_go_together)
    in_steps = [0, *(len(looked_at) for _ in steps)]
    assert max(later - before for before, later in pairwise(in_steps)) == DECIDED_AT_ONCE
    assert len(looked_at) == 8 + 28


def test_the_dearest_sets_are_dropped_meanwhile_and_the_plan_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet has more sets than can be ranked in one step."""
    names = [f"n{number}" for number in range(20)]
    state = cluster(*(node(name, PAIRS) for name in names), *(on(name, name, 0) for name in names))
    pods = [movable(name, name, 0, cost=(7 * number + 5) % 20) for number, name in enumerate(names)]
    before = plan(state, pending("w", 8), *pods)
    monkeypatch.setattr(moves_module, "TRIED", 2)
    monkeypatch.setattr(moves_module, "COLLECTED", 4)
    assert before and plan(state, pending("w", 8), *pods) == before
    assert before.cost_gpu_seconds == 0


def test_gpus_are_given_once() -> None:
    """What the plan gives to the waiting pod and the moved ones, and what others keep, never overlaps."""
    state = two_nodes(*broken_pairs("a"), *broken_pairs("b"))
    made = plan(state, pending("w", 2, request=LINKED), *(movable(f"a{pair}", "a", 2 * pair) for pair in range(4)))
    assert made
    kept = {("a", 2 * pair) for pair in range(4) if f"a{pair}" not in moved(made)}
    kept |= {("b", 2 * pair) for pair in range(4)}
    given_away = [
        (place.node, at) for place in (*made.targets, *(to for _, to in made.moves)) for at in members_of(place.gpus)
    ]
    assert len({*given_away}) == len(given_away)
    assert kept.isdisjoint(given_away)


def room_for(state: ClusterState, unit: Unit, *pods: MovablePod, worth_gpu_seconds: float = PLENTY) -> MovePlan | None:
    return finish(plan_moves_for_gang(planned_nodes(state), places_of(state), unit, pods, worth_gpu_seconds))


def test_all_members_of_a_gang_get_room_or_nobody_moves() -> None:
    """Each of two nodes has one pod in the way; a third node takes both, or only one."""
    small = on("a0", "a", 0), on("b0", "b", 0)
    pods = movable("a0", "a", 0), movable("b0", "b", 0)
    state = cluster(*(node(name, PAIRS) for name in "abc"), *small, on("c0", "c", *range(6)))
    made = room_for(state, gang("g", 8, 8), *pods)
    assert made and nodes_of(made.targets) == ["a", "b"]
    assert moved(made) == {"a0": "c", "b0": "c"}
    state = cluster(*(node(name, PAIRS) for name in "abc"), *small, on("c0", "c", *range(7)))
    assert room_for(state, gang("g", 8, 8), *pods) is None


def test_only_pods_in_the_way_of_a_gang_move_and_of_these_the_cheapest() -> None:
    """One node is free, and of two others one has to be."""
    state = cluster(*(node(name, PAIRS) for name in "abcd"), on("a0", "a", 0), on("b0", "b", 0), on("c0", "c", 0, 1, 2))
    made = room_for(state, gang("g", 8, 8), movable("a0", "a", 0, cost=9), movable("b0", "b", 0, cost=5))
    assert made and (nodes_of(made.targets), moved(made)) == (["b", "d"], {"b0": "c"})
    assert room_for(state, gang("g", 8, 8), movable("b0", "b", 0, cost=5), worth_gpu_seconds=4) is None


def test_a_gang_that_requires_a_rack_gets_room_in_one() -> None:
    """The cheaper pod stands in the other rack, where only one node can be freed."""
    nodes = racks(PAIRS, r1=2, r2=2)
    state = cluster(*nodes, on("x", "r1-0", 0), on("y", "r2-0", 0), on("fixed", "r1-1", 0, 1, 2))
    pods = movable("x", "r1-0", 0, cost=1), movable("y", "r2-0", 0, cost=9)
    made = room_for(state, gang("g", 8, 8, group=IN_ONE_RACK), *pods)
    assert made and (nodes_of(made.targets), moved(made)) == (["r2-0", "r2-1"], {"y": "r1-1"})


def test_an_elastic_gang_gets_room_for_as_many_as_it_needs() -> None:
    """Two of three members start; the pods in their way move, and no others."""
    state = cluster(*(node(name, PAIRS) for name in "abc"), on("a0", "a", 0), on("c0", "c", 0, 1, 2))
    made = room_for(state, gang("g", 8, 8, 8, least=2), movable("a0", "a", 0))
    assert made and (nodes_of(made.targets), moved(made)) == (["a", "b"], {"a0": "c"})


def test_at_most_eight_pods_move_for_a_gang() -> None:
    """With one node more that has to be freed, nobody moves."""
    names = [f"n{number}" for number in range(MOST_MOVES_FOR_GANG + 1)]
    elsewhere = on("fixed-x", "x", 0), on("fixed-y", "y", 0)
    state = cluster(
        *(node(name, PAIRS) for name in (*names, "x", "y")), *elsewhere, *(on(name, name, 0) for name in names)
    )
    pods = [movable(name, name, 0) for name in names]
    made = room_for(state, gang("g", *([8] * MOST_MOVES_FOR_GANG)), *pods)
    assert made and len(made.moves) == MOST_MOVES_FOR_GANG
    assert room_for(state, gang("g", *([8] * len(names))), *pods) is None


def promised(made: MovePlan) -> list[Assignment]:
    return [*made.targets, *(place for _, place in made.moves)]


def leaving(made: MovePlan) -> list[Leaving]:
    return [Leaving(pod.node, pod.held, HostDemand.of(pod.wanted.pod)) for pod, _ in made.moves]


def a_plan(state: ClusterState) -> MovePlan:
    made = plan(state, pending("w", 8, cpu="8"), movable("a0", "a", 0, cpu="3"))
    assert made
    return made


def test_a_plan_still_fits_until_somebody_takes_what_it_promised() -> None:
    """GPUs of its target, GPUs of a new place, or CPU; and not where the pods that were to leave stay."""
    held = on("a0", "a", 0, cpu="3"), on("b0", "b", 0, cpu="5")
    state = two_nodes(*held, cpu="8")
    made = a_plan(state)
    (_, place) = made.moves[0]

    def fits(now: ClusterState, gone: list[Leaving]) -> bool:
        return finish(still_fits(planned_nodes(now), promised(made), gone))

    assert fits(state, leaving(made))
    assert not fits(state, [])
    assert not fits(two_nodes(*held, on("x", "a", 5), cpu="8"), leaving(made))
    assert not fits(two_nodes(*held, on("x", "b", *place.placement.gpus), cpu="8"), leaving(made))
    free = next(position for position in range(1, 8) if position not in place.placement.gpus)
    assert fits(two_nodes(*held, on("x", "b", free), cpu="8"), leaving(made))
    assert not fits(two_nodes(*held, on("x", "b", free, cpu="1"), cpu="8"), leaving(made))


def test_a_plan_does_not_fit_on_a_node_that_is_gone() -> None:
    """The new place was there."""
    held = on("a0", "a", 0, cpu="3"), on("b0", "b", 0, cpu="5")
    made = a_plan(two_nodes(*held, cpu="8"))
    alone = cluster(node("a", PAIRS, cpu="8"), held[0])
    assert not finish(still_fits(planned_nodes(alone), promised(made), leaving(made)))


def together(*pods: MovablePod, group: GroupRequest | None = None) -> list[MovablePod]:
    """Return pods that restart together."""
    return [replace(pod, restart_group="together", group=group) for pod in pods]


def test_pods_that_restart_together_move_together_at_the_cost_of_all() -> None:
    """One of them stands in the way. The other one is elsewhere, and may come back to where it was."""
    state = two_nodes(on("a0", "a", 0), on("b0", "b", *range(3)), on("b4", "b", 4))
    pods = together(movable("a0", "a", 0, cost=2), movable("b4", "b", 4, cost=3))
    made = plan(state, pending("w", 8), *pods, worth_gpu_seconds=5)
    assert made and (moved(made), made.cost_gpu_seconds) == ({"a0": "b", "b4": "b"}, 5)
    assert made.moves[1][1].held == made.moves[1][0].held
    assert finish(still_fits(planned_nodes(state), promised(made), leaving(made)))
    assert plan(state, pending("w", 8), *pods, worth_gpu_seconds=4) is None


def test_another_pod_moves_where_that_costs_less_than_all_that_restart_together() -> None:
    """Though the pod in the way would cost less alone."""
    state = two_nodes(on("a0", "a", 0), on("b0", "b", 0))
    alone, pods = movable("b0", "b", 0, cost=5), together(movable("a0", "a", 0, cost=3), movable("x", "c", 0, cost=3))
    assert moved(plan(state, pending("w", 8), alone, *pods)) == {"b0": "a"}


def test_none_of_them_moves_if_one_has_no_new_place_or_too_many_gpus() -> None:
    """Else two pods could move each other for ever."""
    state = two_nodes(on("a0", "a", 0), on("b0", "b", *range(6)), on("b6", "b", 6))
    assert plan(state, pending("w", 8), *together(movable("a0", "a", 0), movable("b6", "b", 6)))
    state = two_nodes(on("a0", "a", 0), on("b0", "b", *range(7)), on("b6", "b", 7))
    assert plan(state, pending("w", 8), *together(movable("a0", "a", 0), movable("b6", "b", 7))) is None
    state = two_nodes(*broken_pairs("a"), on("b0", "b", 0, 1))
    large = together(movable("a0", "a", 0), movable("b0", "b", 0, 1))
    assert plan(state, pending("w", 2, request=LINKED), *large) is None


def test_a_pod_that_moves_with_others_makes_room_for_one_of_them_where_no_other_place_is_left() -> None:
    """The one in the way fits only where the other one is, and that one fits elsewhere."""
    full = on("x", "b", *range(1, 7)), on("y", "c", *range(7))
    state = cluster(*(node(name, PAIRS) for name in "abc"), on("a0", "a", 0, 1), on("b0", "b", 0), *full)
    made = plan(state, pending("w", 8), *together(movable("a0", "a", 0, 1), movable("b0", "b", 0)))
    assert moved(made) == {"a0": "b", "b0": "c"}


@pytest.mark.parametrize(("count", "fits"), [(MOST_MOVES_FOR_GANG, True), (MOST_MOVES_FOR_GANG + 1, False)])
def test_at_most_eight_pods_move_that_restart_together(count: int, *, fits: bool) -> None:
    """For one pod that waits, which gets the node of one of them."""
    names = [f"n{number}" for number in range(count)]
    state = cluster(*(node(name, PAIRS) for name in names), *(on(name, name, 0) for name in names))
    made = plan(state, pending("w", 8), *together(*(movable(name, name, 0) for name in names)))
    assert (made is not None) == fits
    assert made is None or len(moved(made)) == count


def test_pods_that_move_together_stay_near_each_other() -> None:
    """One rack has room for both of them beside the pod that waits, and two others have room for one each."""
    nodes = racks(PAIRS, r1=1, r2=1, r3=1, r4=1)
    full = on("x", "r2-0", *range(7)), on("y", "r3-0", *range(7)), on("z", "r4-0", *range(5))
    state = cluster(*nodes, on("one", "r1-0", 0), on("two", "r1-0", 1), *full)
    pods = together(movable("one", "r1-0", 0), movable("two", "r1-0", 1), group=NEAR)
    planned = plan_moves(planned_nodes(state), pending("w", 8), pods, PLENTY, places_of=lambda _: places_of(state))
    assert moved(finish(planned)) == {"one": "r4-0", "two": "r4-0"}


def test_for_a_gang_pods_move_together_and_others_instead_of_them_where_they_cost_less() -> None:
    """Two nodes have one of them each, and a third one another pod."""
    held = on("a0", "a", 0), on("b0", "b", 0), on("c0", "c", 0), on("d0", "d", *range(4))
    state = cluster(*(node(name, PAIRS) for name in "abcd"), *held)
    pods = [*together(movable("a0", "a", 0, cost=3), movable("b0", "b", 0, cost=3)), movable("c0", "c", 0, cost=9)]
    made = room_for(state, gang("g", 8, 8), *pods)
    assert made and ({*moved(made)}, made.cost_gpu_seconds) == ({"a0", "b0"}, 6)
    made = room_for(state, gang("g", 8, 8, 8), *pods)
    assert made and ({*moved(made)}, made.cost_gpu_seconds) == ({"a0", "b0", "c0"}, 15)
