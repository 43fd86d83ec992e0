"""How far groups have come, counted: who is placed, who has ended, who is still to come, and what they need."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.groups import GRACE_SECONDS, Groups, fitting_for
from extender.cluster.objects.gpu_pods import GpuPod, read_gpu_pod
from extender.cluster.objects.kinds import Pod
from tests.extender.builders import cluster, node, pod
from topology.annotations import keys
from topology.node.links import Affinity
from topology.request.domains import OURS, Level, Location
from topology.request.gpu_request import GpuRequest

RACK = Location(rack="r1")
KEY, OTHER = (("ml", OURS, name, "") for name in ("llama", "bert"))
FOREIGN = ("vision", OURS, "bert", "")
"""A group of another namespace."""


def member(
    name: str, on: str | None = None, *, phase: str | None = None, size: int = 4, count: int = 1, **more: str
) -> Pod:
    """Build a pod of a group."""
    wants = {keys.GROUP: more.get("group", "llama"), keys.GROUP_SIZE: str(size)}
    return pod(name, count, on=on, phase=phase, wants=wants)


def groups(*members: Pod) -> Groups:
    found = Groups({"n1": RACK, "n2": RACK})
    for each in members:
        found.take(each.metadata.uid, read_gpu_pod(each))
    return found


def nowhere(uid: str) -> str | None:
    return None


@pytest.mark.parametrize(
    ("members", "rest"),
    [
        ([], 4),
        ([member("a", "n1")], 3),
        ([member("a", "n1"), member("b")], 3),
        ([member("a", "n1", phase="Succeeded"), member("b", "n1")], 2),
        ([member("a", "n1", phase="Failed"), member("b", "n1")], 3),
        ([member(name) for name in "abcde"], 5),
        ([member(name, "n1") for name in "abcd"], 0),
    ],
)
def test_what_is_left_is_what_neither_runs_nor_has_succeeded(members: list[Pod], rest: int) -> None:
    """A pod that failed will be made anew; more pods than the size says count all the same."""
    assert groups(*members).progress(KEY, 4, nowhere).rest == rest


def test_the_pod_that_asks_is_still_to_be_placed_wherever_it_is_on_its_way_to() -> None:
    """Others that are on their way count as placed."""
    found = groups(member("a"), member("b"), member("c", "n2"))
    progress = found.progress(KEY, None, lambda uid: "n1", asking="a")
    assert (progress.rest, found.nodes(KEY, lambda uid: "n1", "a")) == (1, ["n1", "n2"])
    assert (progress.placed, found.progress(KEY, None, nowhere, asking="a").rest) == ((RACK,), 2)


def test_a_pod_that_has_ended_is_nowhere() -> None:
    """Its node is not where the group is."""
    assert groups(member("a", "n1", phase="Failed"), member("b", "n2")).nodes(KEY, nowhere) == ["n2"]


def test_a_group_whose_last_pod_is_gone_is_forgotten() -> None:
    """And one whose pod joins another group has lost it."""
    found = groups(member("a", "n1"))
    found.take("a", read_gpu_pod(member("a", "n1", group="bert")))
    assert found.nodes(KEY, nowhere) == []
    assert found.nodes(OTHER, nowhere) == ["n1"]
    found.take("a", None)
    assert found._members == {}


@pytest.mark.parametrize(
    ("members", "gpus", "age", "pods"),
    [
        ([member("a", "n1")], 1, 0.0, 1),
        ([member("a", "n1"), member("b", "n1")], 1, 0.0, 2),
        ([member("a", "n1", count=2), member("b", "n1"), member("c", "n1", size=5)], 4, 0.0, 1),
        ([member("a", "n1", count=4)], 2, 0.0, 2),
        ([member("a", "n1"), member("b", "n1", count=4, phase="Failed")], 1, 0.0, 1),
        ([member("a", "n1"), member("b")], 1, GRACE_SECONDS - 1, 2),
        ([member("a", "n1"), member("b")], 1, GRACE_SECONDS, 1),
        ([member("a")], 1, 0.0, 0),
        ([member(name, "n1") for name in "abcd"], 1, 0.0, 0),
    ],
)
def test_room_is_kept_for_groups_that_have_begun(members: list[Pod], gpus: int, age: float, pods: int) -> None:
    """As many pods of the asking kind as theirs would fill; a size that nobody lives up to counts for a while only."""
    found = groups(*members)
    reserved = found.reserved(FOREIGN, gpus, nowhere, (), lambda created: age)
    assert reserved[Level.RACK, "r1"] == pods
    assert found.reserved(KEY, gpus, nowhere, (), lambda created: age) == {}


@pytest.mark.parametrize(("members", "pods"), [("a", 0), ("ab", 1), ("abc", 2)])
def test_room_is_kept_for_a_group_whose_first_pod_is_on_its_way(members: str, pods: int) -> None:
    """No pod of it is bound yet, so groups of other namespaces leave room for the pods that exist."""
    place_of = {"a": "n1"}.get
    kept = groups(*map(member, members)).reserved(FOREIGN, 1, place_of, ["a", "unheard-of"], lambda created: 0.0)
    assert kept[Level.RACK, "r1"] == pods


def test_groups_of_one_namespace_believe_each_others_sizes() -> None:
    """Controllers create the first pods of several groups before all others; a false size harms only the tenant that wrote it."""
    first = groups(member("a"))
    assert first.reserved(OTHER, 1, lambda uid: "n1", ["a"], lambda created: 0.0)[Level.RACK, "r1"] == 3
    assert first.reserved(OTHER, 1, lambda uid: "n1", ["a"], lambda created: GRACE_SECONDS)[Level.RACK, "r1"] == 0


FEW, MANY = {RACK: 1}, {RACK: 5}


@pytest.mark.parametrize(
    ("asks", "rest", "expected"),
    [
        (GpuRequest(2), 3, MANY),
        (GpuRequest(2, preferred=Affinity.NVLINK), 1, FEW),
        (GpuRequest(2, preferred=Affinity.NVLINK), 2, MANY),
        (GpuRequest(2, preferred=Affinity.NVLINK, required=Affinity.NUMA_NODE), 1, MANY),
    ],
)
def test_near_sets_count_alone_as_long_as_they_are_enough(
    asks: GpuRequest, rest: int, expected: Mapping[Location, int]
) -> None:
    """A pod that requires something has said what counts."""
    assert fitting_for(asks, rest, lambda asked: FEW if asked.required is Affinity.NVLINK else MANY) == expected


def test_where_no_domain_is_known_all_sets_count() -> None:
    """Then there is nothing to be near to."""
    request = GpuRequest(2, preferred=Affinity.NVLINK)
    nowhere_known = {Location(): 5}
    assert fitting_for(request, 1, lambda asked: {} if asked.required else nowhere_known) == nowhere_known
    assert fitting_for(request, 1, lambda asked: {Location(): 1} if asked.required else nowhere_known) == nowhere_known


def gated(made: Pod) -> Pod:
    """Put a pod behind a gate."""
    return replace(made, spec=replace(made.spec, scheduling_gates=[{"name": "kueue.x-k8s.io/admission"}]))


def unsized(name: str, on: str | None = None, *, deleting: bool = False) -> Pod:
    """Build a pod of a group whose size nobody says."""
    return pod(name, 1, on=on, deleting=deleting, wants={keys.GROUP: "llama"})


def test_a_gated_pod_waits_for_no_room() -> None:
    """Neither for its own group, unless that says how large it is, nor against others."""
    waiting = [unsized("a", "n1"), unsized("b"), gated(unsized("c"))]
    assert groups(*waiting).progress(KEY, None, nowhere).rest == 1
    assert groups(*waiting).reserved(FOREIGN, 1, nowhere, (), lambda created: 0.0)[Level.RACK, "r1"] == 1
    sized = groups(member("a", "n1"), gated(member("b")), gated(member("c")))
    assert sized.progress(KEY, 4, nowhere).rest == 3
    assert sized.reserved(FOREIGN, 1, nowhere, (), lambda created: 0.0)[Level.RACK, "r1"] == 1


def test_a_gated_pod_is_nowhere() -> None:
    """A hold from before the gate does not count."""
    assert groups(gated(unsized("a"))).nodes(KEY, lambda uid: "n1") == []


def test_pods_on_their_way_out_do_not_draw_the_next_ones() -> None:
    """A group that is started anew has all places before it, and all of its pods to come."""
    anew = groups(*(unsized(name, "n1", deleting=True) for name in "abc"), unsized("d"))
    assert (anew.nodes(KEY, nowhere), anew.progress(KEY, 3, nowhere).rest) == ([], 3)
    assert groups(unsized("a", deleting=True)).progress(KEY, None, nowhere).rest == 0


def test_a_bound_pod_that_stays_costs_no_walk_through_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups may have thousands of pods, and each of their events would cost that."""

    def walked(*_: object) -> list[GpuPod]:
        raise AssertionError("somebody has walked through the group")

    state = cluster(node("n1"), pod("p", wants={keys.GROUP: "g"}))
    monkeypatch.setattr(Groups, "beside", walked)
    state.pods.changed(pod("p", on="n1", wants={keys.GROUP: "g"}, version=2))
    assert state.indexes.evictions.news() == []
