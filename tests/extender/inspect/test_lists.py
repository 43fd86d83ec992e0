"""Lists of nodes and pods: filters, orders and pages; each row once, however they are sorted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import OwnerReference, Pod
from extender.cluster.state import ClusterState
from extender.inspect.islands import islands_of, largest_free_island
from extender.inspect.lists import (
    NodeFilter,
    NodeOrder,
    PodFilter,
    PodOrder,
    node_rows,
    owner_name,
    pod_rows,
    select_nodes,
    select_pods,
)
from extender.inspect.sight import EVERYTHING, Sight
from tests.extender.builders import DGX, PAIRS, at, claim, cluster, finish, gpus, node, pod, running
from topology.formats.catalog import machine

NOBODY = Sight(frozenset())


def owned(item: Pod, kind: str, name: str) -> Pod:
    owner = OwnerReference("uid", controller=True, kind=kind, name=name)
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, owner_references=[owner]))


def fleet() -> ClusterState:
    """Return an empty node, one of which half is held, one of pairs, and their pods."""
    held = gpus("n2", 0, 1, 2, 3, 4)
    return cluster(
        node("n1"),
        node("n2", claims=tuple(claim(gpu, "train") for gpu in held)),
        node("n3", PAIRS),
        owned(running("train", "n2", *held), "Job", "finetune"),
        pod("small", 1, created="2026-01-03T00:00:00Z"),
        pod("large", 8, created="2026-01-02T00:00:00Z"),
    )


def nodes(state: ClusterState, wanted: NodeFilter, sight: Sight = EVERYTHING) -> list[str]:
    """Return the names of a list, which is read a row at a time."""
    names, after = list[str](), None
    while page := finish(select_nodes(state, wanted, sight, at(), after, 1)):
        after = page[0]
        names.append(after[1])
    return names


def pods(state: ClusterState, wanted: PodFilter, sight: Sight = EVERYTHING) -> list[str]:
    names, after = list[str](), None
    while page := finish(select_pods(state, wanted, sight, after, 1)):
        after = page[0]
        names.append(after[1].removeprefix("ml/"))
    return names


def test_nodes_are_found_by_name_and_by_a_free_island() -> None:
    """Pairs have no island of four, and of the half of a node that is free none of four is left."""
    state = fleet()
    assert nodes(state, NodeFilter(containing="n3")) == ["n3"]
    assert nodes(state, NodeFilter(island=2)) == ["n1", "n2", "n3"]
    assert nodes(state, NodeFilter(island=4)) == ["n1"]
    state.holds.put("p", Hold("n1", 0b11111, expires=10))
    assert nodes(state, NodeFilter(island=4)) == []


def test_nodes_are_sorted_and_every_page_goes_on_where_the_last_one_ended() -> None:
    """Equal figures are in the order of names."""
    state = fleet()
    assert nodes(state, NodeFilter(order=NodeOrder.FREE)) == ["n1", "n3", "n2"]
    assert nodes(state, NodeFilter(order=NodeOrder.GPUS)) == ["n1", "n2", "n3"]


def test_nodes_are_found_by_the_pods_that_the_reader_sees_there() -> None:
    """By pods that are hidden nothing is found."""
    state = fleet()
    for wanted in (NodeFilter(namespace="ml"), NodeFilter(owner="Job/fine")):
        assert (nodes(state, wanted), nodes(state, wanted, NOBODY)) == (["n2"], [])
    assert nodes(state, NodeFilter(owner="StatefulSet")) == []


def test_pods_are_found_by_name_namespace_owner_and_state() -> None:
    """And only by a reader who sees them."""
    state = fleet()
    assert pods(state, PodFilter()) == ["large", "small", "train"]
    assert pods(state, PodFilter(), NOBODY) == pods(state, PodFilter(namespace="ops")) == []
    assert pods(state, PodFilter(owner="finetune")) == pods(state, PodFilter(waits=False)) == ["train"]
    assert pods(state, PodFilter(containing="ml/s", waits=True)) == ["small"]


def test_pods_are_sorted_by_age_and_by_gpus() -> None:
    """The oldest and the largest first."""
    state = fleet()
    assert pods(state, PodFilter(order=PodOrder.AGE)) == ["train", "large", "small"]
    assert pods(state, PodFilter(order=PodOrder.GPUS)) == ["large", "train", "small"]


def test_a_row_tells_the_islands_and_the_largest_free_one() -> None:
    """Of GPUs that are joined in pairs, pairs; three are an island, too."""
    first, second, third = node_rows(fleet(), ["n1", "n2", "n3"], EVERYTHING, at())
    assert [row.free_island for row in (first, second, third)] == [8, 3, 2]
    assert first.islands == ((0, 1, 2, 3, 4, 5, 6, 7),)
    assert third.islands == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_a_gpu_without_nvlinks_is_an_island_of_its_own() -> None:
    """It joins none, and is the largest one that is left where only it is free."""
    assert islands_of(machine("t4-4")) == ((0,), (1,), (2,), (3,))
    state = cluster(node("n1", DGX, claims=tuple(claim(gpu, "p") for gpu in gpus("n1", *range(7)))))
    shape, islands = state.views["n1"].shape, islands_of(machine(DGX))
    assert [largest_free_island(shape, held, islands) for held in (0, 0b1000_0000)] == [1, 0]


def test_a_pods_row_has_its_owner_and_why_it_waits() -> None:
    """One that has ended since is left out."""
    rows = [*pod_rows(fleet(), ["ml/train", "ml/small", "ml/gone"], at())]
    assert [(row.pod.name, row.owner, row.waiting is None) for row in rows] == [
        ("train", "Job/finetune", True),
        ("small", "", False),
    ]


def test_only_a_controller_owns_a_pod() -> None:
    """A reference for garbage collection alone is no owner."""
    state = fleet()
    names: Sequence[str] = [owner_name(found) for found in state.pods]
    assert sorted(names) == ["", "", "Job/finetune"]
