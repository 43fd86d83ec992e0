"""The first call of a new kind of request lets others have their turns, and answers as if it had not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_in_slices, filter_nodes, prioritize_in_slices
from extender.verbs.preparing import PREPARE_STEPS
from tests.extender.builders import args, at, claim, cluster, finish, gpus, node, pod, running
from tests.extender.shares import share, sharing, sharing_node
from topology.annotations import keys
from topology.request.gpu_request import GpuRequest
from topology.value.demand import TYPICAL_KINDS
from topology.value.fragmentation import FILLING_STEPS

NAMES = {f"n{mask}": mask for mask in range(1, 255, 2)}
NODES = 40
GROUP = {keys.GROUP: "train", keys.GROUP_SIZE: "2"}


def fleet() -> ClusterState:
    """Return a machine for each mask of free GPUs: as many shapes."""
    objects = list[Node | Pod]()
    for name, mask in NAMES.items():
        taken = gpus(name, *(position for position in range(8) if mask >> position & 1))
        objects.append(node(name, claims=tuple(claim(gpu, f"on-{name}") for gpu in taken)))
        objects.append(running(f"on-{name}", name, *taken))
    return cluster(*objects)


def test_a_new_kind_of_request_is_answered_in_slices_and_the_next_one_at_once() -> None:
    """What it learned on the way stays."""
    state = fleet()
    pods = (pod("p", 2), pod("q", 2), pod("r", 2, wants=GROUP), pod("s", 2, wants=GROUP))
    pauses = [len([*filter_in_slices(state, args(asked, *NAMES), at(), 16, 30.0)]) for asked in pods]
    assert pauses[0] >= 1
    assert pauses[2] >= 2  # how many pods fit is counted, too, and once more for sets that are joined well
    assert pauses[1] == pauses[3] == 0
    assert [*prioritize_in_slices(state, args(pod("q", 2), *NAMES), at(), 30.0)] == []


@pytest.mark.slow
def test_the_answer_is_that_of_the_moment_it_is_given() -> None:
    """Nodes that fill up in a pause are not in it."""
    state, fresh = fleet(), fleet()
    steps = filter_in_slices(state, args(pod("p", 1), *NAMES), at(), 16, 30.0)
    next(steps)
    best = filter_nodes(fresh, args(pod("p", 1), *NAMES), at()).node_names[0]
    for each in (state, fresh):
        each.pods.changed(running("other", best, *gpus(best, *range(8)), version=2))
    left = finish(steps).node_names
    assert best not in left
    assert left == filter_nodes(fresh, args(pod("q", 1), *NAMES), at()).node_names


def shared_fleet(kinds: int) -> tuple[ClusterState, list[str]]:
    """Return nodes that share GPUs, no two alike, and the mix that so many pods leave which differ by a millicore."""
    names, objects = [f"n{number}" for number in range(NODES)], list[Node | Pod]()
    for number, name in enumerate(names):
        gpu, other, *_ = gpus(name, *range(8))
        uids = {f"{name}-a": (gpu, 1 + number % 38), f"{name}-b": (other, 1 + number // 2)}
        made = sharing_node(*(share(where, uid, gib) for uid, (where, gib) in uids.items()), name=name)
        objects.append(replace(made, status=replace(made.status, allocatable={"cpu": "128"})))
        objects += [sharing(uid, where, gib, on=name) for uid, (where, gib) in uids.items()]
    state = cluster(*objects)
    state.cpu.replaced([])
    for number in range(kinds):
        state.pods.changed(pod(f"evil-{number}", 1, cpu=f"{1000 + number}m"))
    for _ in state.values.appraise():
        pass
    return state, names


def steps_of_values(kinds: int) -> list[int]:
    """Return what values of free GPUs cost each piece of a call on the `shared_fleet`."""
    state, names = shared_fleet(kinds)
    shape = state.views["n0"].shape
    profile = state.shapes.like().order(GpuRequest.plain(1)).to_come(shape)
    assert profile is not None
    costs, before, call = (
        list[int](),
        profile.meter.steps,
        filter_in_slices(state, args(pod("p", 1), *names), at(), 16, 30.0),
    )
    done = False
    while not done:
        done = next(call, call) is call
        costs.append(profile.meter.steps - before)
        before = profile.meter.steps
    return costs


@pytest.mark.slow
def test_pods_that_differ_by_a_millicore_do_not_make_a_call_for_another_dearer() -> None:
    """An autoscaler of CPU requests makes thousands; no piece of a call is longer for them either."""
    costs = steps_of_values(2_000)
    assert (
        0 < sum(costs) <= NODES * 2 * TYPICAL_KINDS * FILLING_STEPS
    )  # before and after, on nodes of which no two are alike
    assert max(costs) <= PREPARE_STEPS
