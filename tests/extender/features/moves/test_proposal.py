"""What `make-room` proposes, and that it says so where nothing has to move or nothing helps."""

from __future__ import annotations

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import Jobs
from extender.features.moves.proposal import MoveProposal, propose
from extender.features.moves.settings import MovesSettings
from extender.features.queue.waiting import gang_of
from tests.extender.builders import PAIRS, at, cluster, gpus, node, pod
from tests.extender.features.moves.test_movable import movable, pod_of, with_owner
from tests.extender.features.queue.queued import of_gang, queued
from tests.extender.mig import cut, cut_node, slice_pod
from tests.extender.shares import sharer, sharing, sharing_node
from topology.annotations import keys

NEEDS_NVLINK = {keys.REQUIRED_AFFINITY: "nvlink"}
HOUR = 3600.0


def on(name: str, where: str, *positions: int) -> Pod:
    return pod(name, len(positions), on=where, placed=gpus(where, *positions, machine_name=PAIRS), phase="Running")


def fragmented(*more: Pod, wants: dict[str, str] | None = None) -> ClusterState:
    """Return two nodes of which every pair of GPUs is broken; the first pod of the first node may move."""
    pods = [on(f"{where}{pair}", where, 2 * pair) for where in "ab" for pair in range(4) if (where, pair) != ("a", 0)]
    waits = pod("waits", 2, wants=NEEDS_NVLINK)
    return cluster(node("a", PAIRS), node("b", PAIRS), *pods, movable("a0", 0, wants=wants), waits, *more)


def proposed(state: ClusterState, name: str = "waits", wait_seconds: float = HOUR) -> MoveProposal:
    waiting = pod_of(state, name)
    gang = gang_of(state, waiting, at(600.0))
    return propose(state, waiting, gang, at(600.0), wait_seconds, Jobs(), MovesSettings())


def test_one_pod_moves_and_the_pod_that_waits_gets_a_linked_pair() -> None:
    """Cost and gain are in GPU-seconds: ten minutes of work and the switch, for an hour of two GPUs."""
    made = proposed(fragmented())
    assert (made.node, sorted(made.gpus)) == ("a", [0, 1])
    (move,) = made.moves
    assert (move.name, move.node, move.gpus) == ("a0", "a", (0,))
    assert (move.to_node, set(move.to_gpus)) != ("a", {0})
    assert (made.cost_gpu_seconds, made.gain_gpu_seconds) == (690.0, 7200.0)


def test_no_plan_costs_more_than_it_brings() -> None:
    """The pod would wait for five minutes only, and that is worth ten minutes of a GPU."""
    assert proposed(fragmented(), wait_seconds=300.0).node is None
    assert proposed(fragmented(wants={keys.RESTART_COST: "1m"}), wait_seconds=300.0).node == "a"


def test_nobody_moves_for_a_pod_that_fits() -> None:
    """It is placed as it is."""
    made = proposed(fragmented(pod("small", 1)), "small")
    assert (made.node is not None, made.moves) == (True, ())


def test_a_gang_of_the_queue_gets_room_as_a_whole() -> None:
    """All of its pods are in the answer. One that is not all there gets none."""
    busy: tuple[Node | Pod, ...] = *(node(name, PAIRS) for name in "abc"), movable("a0", 0), on("b0", "b", 0)
    made = proposed(cluster(*busy, of_gang("g-0", 8), of_gang("g-1", 8)), "g-1")
    assert sorted(place.node for place in made.gang) == ["a", "c"]
    assert [(move.name, move.to_node) for move in made.moves] == [("a0", "b")]
    assert "wait as a whole" in (proposed(cluster(*busy, of_gang("g-0", 8)), "g-0").problem or "")


def test_room_for_a_part_of_an_elastic_gang_is_worth_its_part() -> None:
    """One of three members would start, for five minutes; that is worth less than the ten minutes that the move costs."""
    wants = {**NEEDS_NVLINK, keys.GROUP: "g", keys.GROUP_SIZE: "3", keys.GROUP_MIN: "1", keys.GANG: "required"}
    waits = [queued(f"m{number}", 2, wants=wants) for number in range(3)]
    assert proposed(fragmented(*waits), "m0", wait_seconds=300.0).node is None
    made = proposed(fragmented(*waits), "m0")
    assert (len(made.gang), made.gain_gpu_seconds) == (1, 7200.0)


def test_room_is_made_for_single_pods_that_wait() -> None:
    """Others get the reason."""
    group = {keys.GROUP: "g", keys.GROUP_SIZE: "2"}
    state = fragmented(pod("member", 2, wants={**NEEDS_NVLINK, **group}))
    assert "group" in (proposed(state, "member").problem or "")
    assert "runs on a" in (proposed(state, "a0").problem or "")


def test_shares_are_named_with_their_gpus_and_worth_their_part() -> None:
    """A share of 10 GiB moves, at a quarter of the cost of a GPU, so that one of 30 fits for an hour."""
    first, second, *rest = gpus("n1", *range(8))
    full = pod("full", 6, on="n1", placed=tuple(rest), phase="Running")
    moves = with_owner(sharing("moves", first, 10))
    state = cluster(sharing_node(), full, moves, sharing("there", second, 20), sharer("waits", 30), budgets=[])
    made = proposed(state)
    assert (made.node, made.gpus, made.part, made.gain_gpu_seconds) == ("n1", (0,), "30 GiB of GPU 0", 2700.0)
    (move,) = made.moves
    assert (move.part, move.to_part) == ("10 GiB of GPU 0", "10 GiB of GPU 1")
    assert move.cost_gpu_seconds == 690.0 / 4


def test_slices_are_named_by_profile_and_gpu() -> None:
    """The waiting pod gets one of each of two GPUs."""
    topology = cut("n1", {2: ("1g.10gb",) * 2, 5: ("1g.10gb",) * 2})
    other = cut("n2", {7: ("1g.10gb",)})
    one, two, three, _ = (each.uuid for each in topology.slices)
    stay = [
        slice_pod(name, "1g.10gb", on="n1", placed=(uuid,), phase="Running")
        for name, uuid in (("x", one), ("y", three))
    ]
    moves = with_owner(slice_pod("moves", "1g.10gb", on="n1", placed=(two,), phase="Running"))
    state = cluster(
        cut_node(topology), cut_node(other, "n2"), *stay, moves, slice_pod("waits", "1g.10gb", 2), budgets=[]
    )
    made = proposed(state)
    assert (made.gpus, made.part) == ((2, 5), "1g.10gb of GPU 2, 1g.10gb of GPU 5")
    (move,) = made.moves
    assert (move.gpus, move.part, move.to_gpus, move.to_part) == ((2,), "1g.10gb of GPU 2", (7,), "1g.10gb of GPU 7")
