"""What a pod once proved stays proven, and what a list leaves out proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.cluster.caches.pod_cache import PodCache
from extender.cluster.caches.tombstones import Tombstone, Tombstones
from extender.cluster.objects.gpu_pods import read_gpu_pod
from extender.cluster.objects.kinds import Pod
from tests.extender.builders import pod, running
from topology.annotations import keys
from topology.annotations.records import Holder

STOPPED = pod("p", on="n1", phase="Succeeded", terminated=True, version=2)
LATER = pod("p", on="n1", phase="Failed", version=3)
"""A version from which somebody has removed what the containers said."""
HOLDER = Holder("ml", "p", "main")


def cache() -> PodCache:
    """Return a cache that has listed nothing."""
    pods = PodCache(keys.GPU_RESOURCE, lambda uid, nodes: None)
    pods.replaced([])
    return pods


def test_a_later_version_does_not_take_back_that_a_pod_stopped() -> None:
    """Whoever cleans up pods may leave a status that says less; the containers are no more alive for it."""
    pods = cache()
    pods.changed(STOPPED)
    pods.changed(LATER)
    known = pods.get("p")
    assert known
    assert (known.stopped, known.pod.metadata.resource_version) == (True, "3")
    assert pods.is_stale(HOLDER, "n1")


@pytest.mark.parametrize("last", [STOPPED, LATER])
def test_a_deleted_pod_that_had_stopped_is_remembered_as_that(last: Pod) -> None:
    """Its GPUs need no report; the DELETED event may carry a status that says less than the one before."""
    pods = cache()
    pods.changed(STOPPED)
    pods.deleted(last)
    assert pods.tombstone("p") == Tombstone(("ml", "p"), "n1", stopped=True, gone=True, final=True)
    assert pods.is_stale(HOLDER, "n1")


def test_a_stopped_pod_that_a_list_leaves_out_is_remembered_as_that() -> None:
    """That it is gone is not said, and need not be."""
    pods = cache()
    pods.changed(STOPPED)
    pods.replaced([])
    assert pods.tombstone("p") == Tombstone(("ml", "p"), "n1", stopped=True)


def test_a_stopped_pod_whose_name_was_taken_is_remembered_as_that() -> None:
    """The namesake shows that it is gone, and nothing of it runs."""
    pods = cache()
    pods.changed(STOPPED)
    pods.changed(pod("p", uid="another"))
    assert pods.tombstone("p") == Tombstone(("ml", "p"), "n1", stopped=True, gone=True)


def test_a_pod_that_was_deleted_while_it_ran_has_not_stopped() -> None:
    """Neither its end nor a live read without it says a word of its containers."""
    pods = cache()
    pods.changed(running("p", "n1", "GPU-0"))
    pods.deleted(running("p", "n1", "GPU-0", version=2))
    pods.learn_gone("p")
    assert pods.tombstone("p") == Tombstone(("ml", "p"), "n1", gone=True, final=True)
    assert not pods.is_stale(HOLDER, "n1")


def test_a_live_read_that_finds_nobody_keeps_what_was_known() -> None:
    """A stopped pod stays stopped once it is known to be gone."""
    pods = cache()
    pods.changed(STOPPED)
    pods.replaced([])
    pods.learn_gone("p")
    assert pods.tombstone("p") == Tombstone(("ml", "p"), "n1", stopped=True, gone=True)


def test_the_oldest_tombstones_are_forgotten_first() -> None:
    """A name is forgotten with the last pod that had it, and not before."""
    tombstones = Tombstones(limit=2)
    for uid, name in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        left = read_gpu_pod(pod(name, uid=uid, on="n1"))
        assert left
        tombstones.put(left, gone=True)
    assert [tombstones.find(uid) is not None for uid in ("a1", "a2", "b1")] == [False, True, True]
    assert tombstones.knows(("ml", "a"))
    tombstones.confirm("c1")
    assert (tombstones.find("a2"), tombstones.knows(("ml", "a")), tombstones.knows(("ml", "b"))) == (None, False, True)


def test_a_tombstone_that_is_told_of_again_is_as_new() -> None:
    """It is the last that was heard of all."""
    tombstones = Tombstones(limit=2)
    for uid in ("a", "b", "a", "c"):
        tombstones.confirm(uid)
    assert [tombstones.find(uid) is not None for uid in "abc"] == [True, False, True]


@pytest.mark.parametrize(
    ("tombstone", "on_n1", "on_n2"),
    [
        (Tombstone(node="n1"), False, True),
        (Tombstone(node="n1", final=True), False, True),
        (Tombstone(final=True), True, True),
        (Tombstone(gone=True), False, False),
    ],
)
def test_a_pod_never_ran_where_it_was_not_bound(tombstone: Tombstone, *, on_n1: bool, on_n2: bool) -> None:
    """Bound elsewhere is for ever; unbound only counts in its very last version."""
    assert (tombstone.never_ran_on("n1"), tombstone.never_ran_on("n2")) == (on_n1, on_n2)


def test_whether_a_name_has_stopped_is_asked_of_a_node() -> None:
    """And of the last pod that had the name."""
    tombstones = Tombstones()
    assert not tombstones.has_stopped(("ml", "p"), "n1")
    for uid, version in (("first", STOPPED), ("second", pod("p", on="n1"))):
        left = read_gpu_pod(version)
        assert left
        tombstones.put(replace(left, stopped=uid == "first"), gone=True)
        assert tombstones.has_stopped(("ml", "p"), "n1") is (uid == "first")
        assert not tombstones.has_stopped(("ml", "p"), "n2")


def test_a_pod_that_stopped_elsewhere_says_nothing_of_who_is_seen_here() -> None:
    """Pods of a StatefulSet have their names in turn."""
    pods = cache()
    pods.changed(STOPPED)
    assert pods.is_stale(HOLDER, "n1")
    assert not pods.is_stale(HOLDER, "n2")
