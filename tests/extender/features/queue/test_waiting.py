"""Which pods of the queue can be planned: single ones, and gangs whose members are all there and wait for nothing else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.objects.kinds import AffinityRules, OwnerReference, Pod
from extender.features.queue.waiting import ReadPods, WaitReason
from tests.extender.builders import cluster, node, pod
from tests.extender.features.queue.queued import OTHER_GATE, bound, of_gang, opened, queued, read
from topology.annotations import keys
from topology.request.domains import OURS, Location

RACK = {"topology.kubernetes.io/rack": "r1"}


def test_single_pods_are_units_of_their_own() -> None:
    """With their namespace, priority, age and expected duration."""
    state = cluster(node("n1"), queued("p", 2, priority=3, wants={keys.EXPECTED_DURATION: "10m"}), pod("not-queued"))
    (unit,) = read(state, seconds=60.0).units
    assert (unit.key, unit.namespace, unit.priority, unit.gpus) == ("p", "ml", 3, 2)
    assert (unit.since, unit.expected_seconds, unit.is_gang) == (0.0, 600.0, False)


def test_a_gang_whose_members_are_all_there_is_one_unit() -> None:
    """As old as its oldest, as important as its least important, and as long as its longest."""
    members = [
        of_gang("a", size=3, priority=5, created="2026-01-01T00:00:30Z"),
        of_gang("b", size=3, priority=4),
        of_gang("c", size=3, priority=6),
    ]
    (unit,) = read(cluster(node("n1"), *members)).units
    assert sorted(member.pod.metadata.name for member in unit.members) == ["a", "b", "c"]
    assert (unit.priority, unit.since, unit.needed, unit.expected_seconds) == (4, 0.0, 3, None)


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([queued("p", gates=(keys.PLAN_GATE, OTHER_GATE))], WaitReason.OTHER_GATES),
        ([queued("p", wants={keys.COMMUNICATION: "loud"})], WaitReason.UNREADABLE),
        ([queued("p", affinity=AffinityRules())], WaitReason.CONSTRAINTS),
        ([queued("p", wants={keys.GROUP: "g", keys.GANG: "required"})], WaitReason.NO_SIZE),
        ([of_gang("p", size=2)], WaitReason.INCOMPLETE),
        ([of_gang("p", size=2), of_gang("other", size=2, gates=(keys.PLAN_GATE, OTHER_GATE))], WaitReason.INCOMPLETE),
        ([of_gang("p", size=4, least=2)], WaitReason.INCOMPLETE),
    ],
    ids=[
        "other-gates",
        "unreadable",
        "affinity",
        "no-size",
        "alone",
        "member-held-by-others",
        "fewer-than-its-minimum",
    ],
)
def test_what_cannot_be_planned_says_why(pods: list[Pod], why: WaitReason) -> None:
    """Nothing is planned of such a gang."""
    found = read(cluster(node("n1"), *pods))
    assert (found.units, found.not_planned["p"].why) == ((), why)


def test_an_elastic_gang_is_planned_from_its_minimum_on() -> None:
    """With all members that are there."""
    (unit,) = read(cluster(node("n1"), *(of_gang(name, size=4, least=2) for name in "abc"))).units
    assert (len(unit.members), unit.needed) == (3, 2)


def test_the_rest_of_a_gang_is_planned_where_its_others_are() -> None:
    """One is bound, another one was sent to its node, a third one is new after its pod had died."""
    there = [bound(of_gang("a", size=3), "n1"), opened(of_gang("b", size=3), "n1")]
    (unit,) = read(cluster(node("n1", labels=RACK), *there, of_gang("c", size=3))).units
    assert ([member.pod.metadata.name for member in unit.members], unit.needed) == (["c"], 1)
    assert unit.placed == (Location(rack="r1"),)
    assert unit.is_gang


def test_what_is_planned_already_is_not_read_again() -> None:
    """Neither alone nor as the rest of its gang."""
    state = cluster(node("n1"), queued("p"), of_gang("a"), of_gang("b"))
    assert read(state, planned=frozenset({"p", "a", "b"})).units == ()


@pytest.mark.parametrize(("least", "is_begun"), [(0, True), (1, False)], ids=["all", "one-is-enough"])
def test_the_rest_of_a_gang_comes_first_only_while_the_gang_is_short(least: int, is_begun: bool) -> None:
    """An elastic gang with its minimum has no claim to pass others by."""
    state = cluster(node("n1"), bound(of_gang("a", least=least), "n1"), of_gang("b", least=least))
    (unit,) = read(state).units
    assert unit.is_begun == is_begun


def test_a_gang_of_a_stateful_set_learns_what_holds_its_pods_back() -> None:
    """With OrderedReady the next pod is created once this one is ready, which it cannot be."""
    member = of_gang("p", size=2)
    owner = OwnerReference("s", controller=True, kind="StatefulSet")
    state = cluster(node("n1"), replace(member, metadata=replace(member.metadata, owner_references=[owner])))
    (reason,) = read(state).not_planned.values()
    assert reason.words.endswith("only with podManagementPolicy: Parallel")


def test_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    """Neither counts the other's pods."""
    state = cluster(node("n1"), of_gang("a"), _of_namespace("other", of_gang("b")))
    assert {reason.why for reason in read(state).not_planned.values()} == {WaitReason.INCOMPLETE}


def _of_namespace(namespace: str, item: Pod) -> Pod:
    return replace(item, metadata=replace(item.metadata, namespace=namespace))


def test_a_pod_is_read_again_only_when_it_has_changed_or_a_node_steps_back_from_it() -> None:
    """Otherwise each plan would spend a tenth of a millisecond on every pod of a long queue."""
    state, before = cluster(node("n1"), queued("p", 2)), ReadPods()
    (first,) = read(state, before=before).units
    assert read(state, 120.0, before=before).units == (first,)
    assert read(state, 120.0, before=before).units[0] is first
    state.memory.setbacks.fail("p", "n1", 120.0, "ml")
    assert read(state, 121.0, before=before).units[0].members[0].avoided == ("n1",)
    state.pods.changed(queued("p", 4, version=5))
    assert read(state, 10_000.0, before=before).units[0].gpus == 4


def test_members_of_gangs_are_read_again_only_when_they_have_changed() -> None:
    """The others are what they were."""
    state, before = cluster(node("n1"), of_gang("a"), of_gang("b")), ReadPods()
    (first,) = read(state, before=before).units
    state.pods.changed(of_gang("a", 4, version=5))
    (second,) = read(state, before=before).units
    assert [member.gpus for member in second.members] == [2, 4]
    assert second.members[0] is first.members[1]


def test_the_size_of_a_gang_may_become_known_after_its_members_have_been_read() -> None:
    """Its Job says it, which is read later than the pods."""
    wants = {keys.GROUP: "g", keys.GANG: "required"}
    state, before = cluster(node("n1"), queued("a", 2, wants=wants), queued("b", 2, wants=wants)), ReadPods()
    assert {reason.why for reason in read(state, before=before).not_planned.values()} == {WaitReason.NO_SIZE}
    state.indexes.groups.sizes.put(("ml", OURS, "g", ""), 2)
    assert read(state, before=before).units[0].is_gang
