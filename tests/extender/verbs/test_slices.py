"""The first call of a new kind of request lets others have their turns, and answers as if it had not."""

from __future__ import annotations

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_in_slices, filter_nodes, prioritize_in_slices
from tests.extender.builders import args, at, claim, cluster, finish, gpus, node, pod, running
from topology.annotations import keys

NAMES = {f"n{mask}": mask for mask in range(1, 255, 2)}
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
