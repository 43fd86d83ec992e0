"""What filter answers when kube-scheduler tries a PodGroup as if all pods of lower priority were gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from extender.cluster.objects.kinds import Node, NodeStatus, Pod
from extender.cluster.state import ClusterState
from extender.verbs import as_if_gone
from extender.verbs.filter_prioritize import CANDIDATES, filter_in_slices, filter_nodes
from tests.extender.builders import DGX, PAIRS, args, at, claim, cluster, gpus, node, pod
from topology.annotations import keys

NVLINK = {keys.REQUIRED_AFFINITY: "nvlink"}


def full(name: str, *pods: tuple[int, Sequence[int]], machine_name: str = DGX) -> list[Node | Pod]:
    """Return a node of eight GPUs, and a pod for each priority with the GPUs that it has."""
    found, claims = list[Node | Pod](), []
    for number, (priority, positions) in enumerate(pods):
        uid, placed = f"{name}-{number}", gpus(name, *positions, machine_name=machine_name)
        claims += [claim(gpu, uid) for gpu in placed]
        found.append(
            pod(uid, len(placed), on=name, placed=placed, phase="Running", terminated=False, priority=priority)
        )
    made = node(name, machine_name, claims=tuple(claims))
    return [replace(made, status=NodeStatus({keys.GPU_RESOURCE: "8"}, made.status.conditions)), *found]


def members(count: int, size: int = 8, priority: int = 1000, wants: Mapping[str, str] | None = None) -> list[Pod]:
    """Return pods of one PodGroup."""
    return [pod(f"m{number}", size, wants=wants, gang="vip", priority=priority) for number in range(count)]


def trial(state: ClusterState, asked: Sequence[Pod], *names: str) -> list[list[str]]:
    """Ask about all members."""
    return [list(filter_nodes(state, args(member, *names), at()).node_names) for member in asked]


ALL = range(8)


def test_a_full_node_that_is_asked_about_is_offered_as_if_lower_priorities_were_gone() -> None:
    """kube-scheduler asks about no such node otherwise."""
    gang = members(3)
    state = cluster(*full("n1", (0, ALL)), *full("n2", (0, ALL)), *full("n3", (2000, ALL)), *gang)
    assert trial(state, gang, "n1", "n2") == [["n1"], ["n2"], []]


def test_a_pod_without_a_group_is_refused_as_ever() -> None:
    """For it kube-scheduler calls preempt."""
    asked = pod("p", 8, priority=1000)
    state = cluster(*full("n1", (0, ALL)), asked)
    assert trial(state, [asked], "n1") == [[]]


def test_a_group_that_needs_one_rack_may_begin_in_any() -> None:
    """None of its pods is placed, and kube-scheduler tries all of them at once."""
    gang = members(2, wants={keys.GROUP_AFFINITY: "required-rack", keys.GROUP_SIZE: "2"})
    state = cluster(*full("n1", (0, ALL)), *full("n2", (0, ALL)), *gang)
    assert trial(state, gang[:1], "n1", "n2") == [["n1"]]


def test_a_group_of_the_same_priority_is_refused() -> None:
    gang = members(2, priority=0)
    state = cluster(*full("n1", (0, ALL)), *gang)
    assert trial(state, gang, "n1") == [[], []]


def test_where_the_count_suffices_nobody_is_imagined_gone() -> None:
    """Links refuse the pod there, and to kube-scheduler nothing would have to change."""
    gang = members(2, 2, wants=NVLINK)
    state = cluster(*full("n1", (0, (1, 3, 5, 7)), machine_name=PAIRS), *gang)
    assert trial(state, gang, "n1") == [[], []]


def test_the_cheapest_victims_come_first() -> None:
    """Nobody, then those of the lowest priority, then the fewest."""
    gang = members(4)
    state = cluster(
        *full("n1", (5, ALL)), *full("n2", (1, range(4)), (1, range(4, 8))), *full("n3", (1, ALL)), *full("n4"), *gang
    )
    assert trial(state, gang, "n1", "n2", "n3", "n4") == [["n4"], ["n3"], ["n2"], ["n1"]]


def test_a_node_where_the_victims_by_count_are_not_enough_by_links_is_left_out() -> None:
    """kube-scheduler would evict the one that it counts out, again and again, and the pod would not fit."""
    (member,) = members(1, 2, wants=NVLINK)
    torn = full("n1", (9, (0, 2, 4, 6, 1)), (1, (3, 5)), (9, (7,)), machine_name=PAIRS)
    state = cluster(*torn, *full("n2", (9, range(6)), (1, (6, 7)), machine_name=PAIRS), member)
    assert trial(state, [member], "n1") == [[]]
    assert trial(state, [member], "n1", "n2") == [["n2"]]


def test_the_other_members_are_left_what_they_were_offered() -> None:
    gang = members(3, 4)
    state = cluster(*full("n1", (0, ALL)), *gang)
    assert trial(state, gang, "n1") == [["n1"], ["n1"], []]


def test_what_the_victims_leave_behind_is_waited_for() -> None:
    """They are gone, and it is not proven yet that their containers are. Nobody else has to go."""
    gang = members(1)
    state = cluster(*full("n1", (0, ALL)), *full("n2", (0, ALL)), *gang)
    victim = state.pods.get("n2-0")
    assert victim is not None
    state.pods.deleted(victim.pod)
    assert trial(state, gang, "n2") == [[]], (
        "only this node is asked about: kube-scheduler has evicted for the pod before"
    )
    assert trial(state, gang, "n1", "n2") == [["n2"]]


def test_pods_that_have_ended_are_not_counted() -> None:
    gang = members(1)
    state = cluster(*full("n1", (0, ALL)), *gang)
    there = state.pods.get("n1-0")
    assert there is not None
    metadata = replace(there.pod.metadata, resource_version="2")
    state.pods.changed(replace(there.pod, metadata=metadata, status=replace(there.pod.status, phase="Failed")))
    assert trial(state, gang, "n1") == [[]], "kube-scheduler counts its GPUs as free, and need imagine nothing"


def test_only_the_cheapest_nodes_are_decided_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant chooses what its pods ask for, and no node may have it."""
    (member,) = members(1, 2, wants=NVLINK)
    torn = full("n1", (9, (0, 2, 4, 6, 1)), (1, (3, 5)), (9, (7,)), machine_name=PAIRS)
    dear = full("n2", (9, range(6)), (9, (6, 7)), machine_name=PAIRS)
    state = cluster(*torn, *dear, member)
    assert trial(state, [member], "n1", "n2") == [["n2"]]
    monkeypatch.setattr(as_if_gone, "MOST_TRIES", 1)
    assert trial(state, [member], "n1", "n2") == [[]]


def test_many_nodes_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls for other pods are answered in between."""
    monkeypatch.setattr(as_if_gone, "STEP_NODES", 2)
    (member,) = members(1, priority=0)
    names = [f"n{number}" for number in range(8)]
    state = cluster(*(made for name in names for made in full(name, (0, ALL))), member)
    trial(state, [member], *names)
    steps = filter_in_slices(state, args(member, *names), at(), CANDIDATES, 30.0)
    assert len(list(steps)) == len(names) // 2
