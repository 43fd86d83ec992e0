"""Pods with shares of GPUs and MIG slices move, and pods that wait for them get room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.cluster.candidates.holds import Held
from extender.cluster.given_back import held_alone
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.planning.leaving import Leaving, still_fits
from extender.planning.moves import CHEAPEST, MovablePod, MovePlan, plan_moves
from extender.planning.planned_nodes import NO_DEMAND
from extender.planning.units import PendingPod
from tests.extender.builders import cluster, gpus, node, pod
from tests.extender.mig import cut, cut_node, slice_pod
from tests.extender.planning.gangs import planned_nodes
from tests.extender.planning.test_moves import moved
from tests.extender.shares import sharer, sharing, sharing_node
from topology.effort import finish
from topology.request.gpu_request import GpuRequest

PLENTY = 1e9


def asking(name: str, gib: int) -> PendingPod:
    return PendingPod(sharer(name, gib), GpuRequest(0, memory_gib=(gib,)))


def whole(name: str, count: int) -> PendingPod:
    return PendingPod(pod(name, count), GpuRequest.plain(count))


def on(name: str, where: str, position: int, gib: int) -> Pod:
    """Return a pod with a share of a GPU, and 39 GiB are all that shares may take of it."""
    (gpu,) = gpus(where, position)
    return sharing(name, gpu, gib, on=where)


def full(where: str, *positions: int) -> Pod:
    """Return a pod that has GPUs of a node, and does not move."""
    return pod(f"full-{where}", len(positions), on=where, placed=gpus(where, *positions), phase="Running")


def two_nodes(*pods: Pod) -> ClusterState:
    """Return two nodes of which the first two GPUs may be free, or shared."""
    return cluster(
        sharing_node(name="a"), sharing_node(name="b"), full("a", *range(2, 8)), full("b", *range(2, 8)), *pods
    )


def movable(state: ClusterState, *names: str, cost: float = 1.0) -> list[MovablePod]:
    """Return pods as they may move."""
    pods = list[MovablePod]()
    for name in names:
        bound = state.pods.get(name)
        assert bound and bound.node
        request = GpuRequest(0, memory_gib=bound.shares) if bound.shares else GpuRequest.plain(bound.gpus or 0)
        wanted = PendingPod(bound.pod, state.request_of(bound.pod).request if bound.profile else request)
        pods.append(MovablePod(wanted, bound.node, held_alone(state.views[bound.node])[name], cost))
    return pods


def plan(
    state: ClusterState, waiting: PendingPod, *names: str, worth: float = PLENTY, cost: float = 1.0
) -> MovePlan | None:
    return finish(plan_moves(planned_nodes(state), waiting, movable(state, *names, cost=cost), worth))


def test_a_share_moves_onto_a_gpu_that_is_shared_already_and_frees_its_own() -> None:
    """No GPU is free before."""
    state = two_nodes(on("x", "a", 0, 10), on("y", "a", 1, 39), on("z", "b", 0, 20), on("v", "b", 1, 39))
    made = plan(state, whole("w", 1), "x")
    assert made and (made.targets[0].node, made.targets[0].placement.gpus, made.gpus) == ("a", (0,), 1.0)
    assert [place.held for _, place in made.moves] == [Held(0, ((0, 10, ""),))]
    assert moved(made) == {"x": "b"}


def test_a_gpu_is_free_only_if_all_of_its_shares_may_leave() -> None:
    """Two of three would leave one behind."""
    shared = [on(name, "a", 0, 5) for name in "xyz"]
    state = two_nodes(*shared, on("full", "a", 1, 39), on("room", "b", 0, 10), on("v", "b", 1, 39))
    assert plan(state, whole("w", 1), "x", "y", "z") is None
    state = two_nodes(*shared[:2], on("full", "a", 1, 39), on("room", "b", 0, 10), on("v", "b", 1, 39))
    assert plan(state, whole("w", 1), "x") is None
    assert moved(plan(state, whole("w", 1), "x", "y")) == {"x": "b", "y": "b"}


def test_no_share_moves_without_room_for_it() -> None:
    """The other shared GPU has 9 GiB left, and two pods do not fit where one does."""
    state = two_nodes(on("x", "a", 0, 10), on("full", "a", 1, 39), on("y", "b", 0, 30), on("v", "b", 1, 39))
    assert plan(state, whole("w", 1), "x") is None
    state = two_nodes(
        on("x", "a", 0, 10), on("y", "a", 0, 10), on("f", "a", 1, 39), on("z", "b", 0, 25), on("v", "b", 1, 39)
    )
    assert plan(state, whole("w", 1), "x", "y") is None


def test_a_larger_share_gets_room_as_smaller_ones_move() -> None:
    """It needs 30 GiB, and the shared GPUs have 20 and 10 left."""
    state = two_nodes(on("x", "a", 0, 19), on("f", "a", 1, 39), on("y", "b", 0, 19), on("v", "b", 1, 39))
    made = plan(state, asking("w", 30), "x")
    assert made and moved(made) == {"x": "b"}
    assert made.targets[0].held == Held(0, ((0, 30, ""),))
    assert made.gpus == 30 / 40


def test_one_of_many_pods_leaves_a_gpu_for_a_larger_share() -> None:
    """The others stay there: 9 GiB are left beside all of them, and 19 beside the rest."""
    crowd = [on(name, "a", 0, 10) for name in "xyz"]
    state = two_nodes(*crowd, on("f", "a", 1, 39), on("room", "b", 0, 25), on("v", "b", 1, 39))
    assert moved(plan(state, asking("w", 15), "x", "y", "z")) == {"x": "b"}


def test_no_pod_moves_for_a_smaller_one_whatever_it_holds() -> None:
    """Any GPU is more than all slices, and any slice more than all GiB: no two pods move each other."""
    state = two_nodes(on("x", "a", 0, 19), on("f", "a", 1, 39), on("y", "b", 0, 19), on("v", "b", 1, 39))
    assert plan(state, asking("w", 19), "x") is None
    one = pod("one", 1, on="a", placed=gpus("a", 0), phase="Running")
    state = two_nodes(one, on("f", "a", 1, 39), on("y", "b", 0, 10))
    assert plan(state, asking("w", 39), "one") is None


def test_room_for_a_share_is_worth_its_part_of_a_gpu() -> None:
    """An hour of 30 of 40 GiB is worth 2,700 GPU-seconds."""
    state = two_nodes(on("x", "a", 0, 19), on("f", "a", 1, 39), on("y", "b", 0, 19), on("v", "b", 1, 39))
    assert plan(state, asking("w", 30), "x", worth=3600.0, cost=2700.0)
    assert plan(state, asking("w", 30), "x", worth=3600.0, cost=2701.0) is None


def test_cheap_pods_on_crowded_gpus_do_not_hide_the_one_that_frees_a_gpu() -> None:
    """Only the cheapest pods of a node are tried."""
    crowd = [on(f"c{number}", "a", 1, 3) for number in range(CHEAPEST + 1)]
    state = two_nodes(on("x", "a", 0, 20), *crowd, on("y", "b", 0, 10), on("v", "b", 1, 39))
    pods = [*movable(state, *(item.metadata.name for item in crowd)), *movable(state, "x", cost=9.0)]
    assert moved(finish(plan_moves(planned_nodes(state), whole("w", 1), pods, PLENTY))) == {"x": "b"}


def test_cheap_pods_with_slices_do_not_hide_the_one_that_frees_a_gpu() -> None:
    """No slice makes room for whole GPUs."""
    topology = cut("a", {6: ("1g.10gb",) * 7, 7: ("1g.10gb",) * 7})
    crowd = [
        slice_pod(f"s{at}", "1g.10gb", on="a", placed=(mig_slice.uuid,), phase="Running")
        for at, mig_slice in enumerate(topology.slices[: CHEAPEST + 1])
    ]
    held = [gpu.uuid for gpu in topology.gpus]
    x = pod("x", 1, on="a", placed=(held[0],), phase="Running")
    stays = pod("stays", 4, on="a", placed=tuple(held[2:6]), phase="Running")
    state = cluster(cut_node(topology, "a"), node("b"), *crowd, x, stays, full("b", *range(1, 8)))
    pods = [*movable(state, *(item.metadata.name for item in crowd)), *movable(state, "x", cost=9.0)]
    assert moved(finish(plan_moves(planned_nodes(state), whole("w", 2), pods, PLENTY))) == {"x": "b"}


def test_more_pods_leave_a_gpu_if_they_restart_together() -> None:
    """They count as one."""
    shared = [on(name, "a", 0, 10) for name in "xyz"]
    state = two_nodes(*shared, on("f", "a", 1, 39), on("room", "b", 0, 9), on("v", "b", 1, 39))
    pods = [replace(moving, restart_group="group") for moving in movable(state, "x", "y", "z")]
    made = finish(plan_moves(planned_nodes(state), whole("w", 1), pods, PLENTY))
    assert moved(made) == {"x": "b", "y": "b", "z": "b"}


def test_a_plan_holds_until_somebody_takes_what_it_promised_of_a_gpu() -> None:
    """A share beside the new place, a share on the target, or the same room."""
    before = on("x", "a", 0, 10), on("f", "a", 1, 39), on("y", "b", 0, 20), on("v", "b", 1, 39)
    state = two_nodes(*before)
    made = plan(state, whole("w", 1), "x")
    assert made
    places = [*made.targets, *(place for _, place in made.moves)]

    def fits(now: ClusterState, *leaving: str) -> bool:
        gone = [Leaving(moving.node, moving.held, NO_DEMAND) for moving in movable(now, *leaving)]
        return finish(still_fits(planned_nodes(now), places, gone))

    assert fits(state, "x")
    assert not fits(state)
    assert fits(two_nodes(*before, on("new", "b", 0, 9)), "x")
    assert not fits(two_nodes(*before, on("new", "b", 0, 10)), "x")
    assert not fits(two_nodes(*before, on("new", "a", 0, 1)), "x")


def test_what_a_pod_gives_back_counts_once_though_it_leaves_while_a_plan_is_checked() -> None:
    """Else the GPU would count as whole that another pod still shares."""
    state = two_nodes(on("x", "a", 0, 20), on("y", "a", 0, 10), on("f", "a", 1, 39))
    (x,) = movable(state, "x")
    steps = planned_nodes(state).later({"a": x.held})
    next(steps)
    state.pods.deleted(on("x", "a", 0, 20))
    assert held_alone(state.views["a"]).keys().isdisjoint({"x"})
    assert finish(steps).place_on(pod("w", 1), GpuRequest.plain(1), "a", Held(0b1)) is None


def test_a_slice_moves_so_that_a_pod_with_two_has_both_on_one_node() -> None:
    """Each node has one free slice of the profile. A pod with as many slices does not move."""
    layouts = {name: cut(name, {0: ("1g.10gb",) * 3}) for name in "ab"}
    held = [
        slice_pod(
            f"{name}{count}", "1g.10gb", count, on=name, placed=tuple(each.uuid for each in slices), phase="Running"
        )
        for name, topology in layouts.items()
        for count, slices in ((2, topology.slices[:2]),)
        if name == "b"
    ]
    one = [
        slice_pod(f"a{at}", "1g.10gb", on="a", placed=(layouts["a"].slices[at].uuid,), phase="Running") for at in (0, 1)
    ]
    state = cluster(*(cut_node(layouts[name], name) for name in "ab"), *held, *one)
    wanted = PendingPod(slice_pod("w", "1g.10gb", 2), GpuRequest(2, profile="1g.10gb"))
    made = plan(state, wanted, "a0", "a1", "b2")
    assert made and (made.targets[0].node, moved(made), made.gpus) == ("a", {"a0": "b"}, 2 / 8)
    assert plan(state, wanted, "b2") is None


@pytest.mark.parametrize("gib", [10, 39])
def test_slices_make_no_room_for_shares_nor_for_whole_gpus(gib: int) -> None:
    """Nobody makes slices whole again."""
    topology = cut("a", dict.fromkeys(range(8), ("1g.10gb",) * 2))
    held = slice_pod("x", "1g.10gb", on="a", placed=(topology.slices[0].uuid,), phase="Running")
    state = cluster(cut_node(topology, "a"), held)
    assert plan(state, whole("w", 1), "x") is None
    assert plan(state, asking("w", gib), "x") is None
