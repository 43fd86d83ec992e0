"""What filter answers for the members of a PodGroup, which kube-scheduler tries one after the other and binds last."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.gangs import LIMIT, MOST_OFFERS, Gangs
from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import PAIRS, args, at, claim, cluster, gpus, node, pod, running
from topology.annotations import keys
from topology.request.gpu_request import GpuRequest

NVLINK = {keys.REQUIRED_AFFINITY: "nvlink"}
ONE_PAIR, TWO_PAIRS = (3, 5, 6, 7), (4, 5, 6, 7)
"""What is taken of a machine that has one linked pair left and two GPUs more, or two pairs."""


def machine_with(name: str, taken: Sequence[int]) -> tuple[Node, Pod]:
    """Return a node with four free GPUs, and the pod that has the others."""
    others, owner = gpus(name, *taken, machine_name=PAIRS), f"on-{name}"
    return node(name, PAIRS, claims=tuple(claim(gpu, owner) for gpu in others)), running(owner, name, *others)


def members(count: int, gang: str = "train") -> list[Pod]:
    """Return pods of one PodGroup that each want a linked pair."""
    return [pod(f"{gang}-{number}", 2, wants=NVLINK, gang=gang) for number in range(count)]


def nodes_for(state: ClusterState, asked: Pod, *names: str) -> list[str]:
    """Return the nodes that a pod is offered."""
    return list(filter_nodes(state, args(asked, *names), at()).node_names)


def trial(state: ClusterState, asked: Sequence[Pod], *names: str) -> list[list[str]]:
    """Ask about all members, as kube-scheduler does before it binds the first one."""
    return [nodes_for(state, member, *names) for member in asked]


def test_a_member_leaves_to_the_earlier_ones_what_they_were_offered() -> None:
    """By count both fit, and by links only one: half a gang would run and wait for the other half for ever."""
    gang = members(2)
    state = cluster(*machine_with("n1", ONE_PAIR), *gang)
    assert trial(state, gang, "n1") == [["n1"], []]


def test_pods_without_a_group_may_still_take_what_is_held() -> None:
    state, pods = cluster(*machine_with("n1", ONE_PAIR)), [pod(name, 2, wants=NVLINK) for name in ("p1", "p2")]
    assert trial(state, pods, "n1") == [["n1"], ["n1"]]


def test_each_member_is_offered_one_node_and_together_they_fit() -> None:
    """kube-scheduler does not say which of several nodes it has taken."""
    gang = members(3)
    state = cluster(*machine_with("n1", ONE_PAIR), *machine_with("n2", TWO_PAIRS), *gang)
    offered = trial(state, gang, "n1", "n2")
    assert sorted(offered) == [["n1"], ["n2"], ["n2"]]


@pytest.mark.parametrize("again", [1, 2, 5])
def test_a_trial_knows_nothing_of_the_one_before(again: int) -> None:
    """The group is tried again and again, and the last answers of the trial before must not stand in its way."""
    gang = members(2)
    state = cluster(*machine_with("n1", TWO_PAIRS), *gang)
    for _ in range(again):
        assert trial(state, gang, "n1") == [["n1"], ["n1"]]


def test_every_set_of_nodes_is_a_trial_of_its_own() -> None:
    """kube-scheduler tries one rack after the other, and takes the best of those where all fit."""
    gang = members(2)
    state = cluster(*machine_with("a", ONE_PAIR), *machine_with("b", TWO_PAIRS), *machine_with("c", TWO_PAIRS), *gang)
    assert [trial(state, gang, rack) for rack in "abc"] == [[["a"], []], [["b"], ["b"]], [["c"], ["c"]]]


def test_a_member_that_no_node_takes_ends_nothing() -> None:
    """The nominated node is asked about first, and then all others, in the same trial."""
    first, second = members(2)
    state = cluster(*machine_with("n1", ONE_PAIR), *machine_with("n2", ONE_PAIR), first, second)
    assert nodes_for(state, first, "n1") == ["n1"]
    assert nodes_for(state, second, "n1") == []
    assert nodes_for(state, second, "n1", "n2") == ["n2"]


def test_the_offers_of_two_groups_do_not_keep_each_other_out() -> None:
    """Whether the other group will be bound is not known."""
    one, two = members(1, "one"), members(1, "two")
    state = cluster(*machine_with("n1", ONE_PAIR), *one, *two)
    assert trial(state, [*one, *two], "n1") == [["n1"], ["n1"]]


def test_the_same_name_in_another_namespace_is_another_group() -> None:
    mine, theirs = members(2)
    theirs = replace(theirs, metadata=replace(theirs.metadata, namespace="others"))
    state = cluster(*machine_with("n1", ONE_PAIR), mine, theirs)
    assert trial(state, [mine, theirs], "n1") == [["n1"], ["n1"]]


def test_a_member_that_is_gone_is_left_nothing() -> None:
    first, second = members(2)
    state = cluster(*machine_with("n1", ONE_PAIR), first, second)
    assert trial(state, [first], "n1") == [["n1"]]
    state.pods.deleted(first)
    assert trial(state, [second], "n1") == [["n1"]]


def test_what_is_remembered_of_groups_is_bounded() -> None:
    """Anybody can make PodGroups, and pods in them; the newest trial of a group is whole in any case."""
    gangs = Gangs()
    for number in range(LIMIT + 10):
        (member,) = members(1, f"g{number}")
        gangs.ask(member)
    assert len(gangs) == LIMIT
    large = members(50, "large")
    for _ in range(2 * MOST_OFFERS // len(large)):
        for member in large:
            gangs.ask(member)
            gangs.offer(member.metadata.uid, Hold("n1", 1, 30.0), GpuRequest(1))
    assert sum(gangs.trials("ml", "large")) <= MOST_OFFERS + len(large)
    assert len(gangs.together("large-0", "n1")) == len(large)


def test_trials_of_pods_that_are_gone_leave_nothing_behind() -> None:
    """A tenant can keep one member, and create and delete others for ever."""
    gangs, (keeper, *others) = Gangs(), members(4)
    gangs.ask(keeper)
    for other in others:
        for _ in range(50):
            gangs.ask(other)
            gangs.offer(other.metadata.uid, Hold("n1", 1, 30.0), GpuRequest(1))
        gangs.forget(other.metadata.uid)
        assert gangs.trials("ml", "train") == [1, 0]
