"""A list is believed, whatever its versions; what could not be read still exists."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.cluster.objects.budgets import TOO_MANY_LABELS
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.cluster.objects.versions import Listing
from extender.cluster.ownership.standing import Standing
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from tests.extender.builders import claim, cluster, gpus, node, pod

(G,) = gpus("n1", 0)


def state_of(*pods: Any, at: int) -> tuple[ClusterState, PodFeed]:
    state = ClusterState()
    feed = PodFeed(state)
    state.nodes.replaced([node("n1", version=at)], Listing(str(at)))
    feed.replaced(list(pods), Listing(str(at)))
    return state, feed


def named(uid: str, version: int = 9, name: str = "") -> ObjectMeta:
    return ObjectMeta(name=name or uid, namespace="ml", uid=uid, resource_version=str(version))


@pytest.mark.parametrize("version", ["500", ""], ids=["versions went on", "versions began anew"])
def test_a_list_after_a_restore_is_believed(version: str) -> None:
    """Its objects are of before, and so are their numbers."""
    state, feed = state_of(pod("p", 1, on="n1", version=90), at=100)
    feed.replaced([pod("p", 1, version=40)], Listing(version))
    state.nodes.replaced([node("n1", version=30)], Listing(version))
    known, machine = state.pods.get("p"), state.nodes.get("n1")
    assert known is not None and (known.node, known.pod.metadata.resource_version) == (None, "40")
    assert machine is not None and machine.node.metadata.resource_version == "30"
    feed.changed(pod("p", 1, on="n1", version=41))
    assert [each.uid for each in state.pods.bound_to("n1")] == ["p"]


def test_the_reply_to_a_write_is_newer_than_a_list_from_before_it() -> None:
    """Both were under way; the watch goes on from the list, and tells of the write."""
    state, feed = state_of(pod("p", 1, version=90), at=100)
    state.pods.learn(pod("p", 1, version=120))
    state.nodes.learn(node("n1", version=121))
    feed.replaced([pod("p", 1, version=90)], Listing("110"))
    state.nodes.replaced([node("n1", version=100)], Listing("110"))
    known, machine = state.pods.get("p"), state.nodes.get("n1")
    assert known is not None and known.pod.metadata.resource_version == "120"
    assert machine is not None and machine.node.metadata.resource_version == "121"


def test_what_could_not_be_read_is_not_taken_for_gone() -> None:
    """Pods, nodes, what is asked of CPU, and agents stay as they were when they could be read."""
    state, feed = state_of(pod("p", 1, on="n1", version=90), at=100)
    feed.replaced([], Listing("110", (named("p"),)))
    state.nodes.replaced([], Listing("110", (named("n1"),)))
    assert [each.uid for each in state.pods.bound_to("n1")] == ["p"]
    assert state.pods.tombstone("p") is None
    assert state.nodes.get("n1") is not None


def test_the_last_version_need_not_be_read() -> None:
    """It is enough that the pod, or the node, is gone; what that proves is no more than before."""
    state, feed = state_of(pod("p", 1, on="n1", version=90), at=100)
    feed.unread(named("p", 101), gone=True)
    tombstone = state.pods.tombstone("p")
    assert state.pods.get("p") is None
    assert tombstone is not None and (tombstone.gone, tombstone.final, tombstone.node) == (True, False, "n1")
    state.nodes.unread(ObjectMeta(name="n1", uid=node("n1").metadata.uid), gone=True)
    assert state.nodes.get("n1") is None


@pytest.mark.parametrize("gone", [False, True])
def test_a_pod_that_was_never_read_frees_no_gpu(gone: bool) -> None:
    """Its claim stands: as long as it exists only a live read can tell, and afterwards only the node's agent."""
    state, feed = state_of(at=100)
    state.nodes.changed(node("n1", claims=(claim(G, "p"),), version=101))
    feed.unread(named("p", 102), gone=gone)
    assert [standing for _, standing in state.views["n1"].claims] == [Standing.GONE if gone else Standing.UNSEEN]


def test_a_pod_that_was_never_read_is_remembered_by_name() -> None:
    """A report on a pod of that name may mean either."""
    for unread in (named("old", 101, name="p"), None):
        state, feed = state_of(at=100)
        if unread is not None:
            feed.unread(unread, gone=True)
        feed.changed(pod("p", 1, version=102))
        known = state.pods.get("p")
        assert known is not None and state.pods.is_alone(known) is (unread is None)


def test_a_gpu_pod_is_kept_without_its_ballast() -> None:
    """Labels and gates may be as many as etcd takes, and cost ten times as much in memory; a word for all says enough.

    Those that name a group are kept all the same.
    """
    gates: list[dict[str, object]] = [{"name": f"example.test/{number}"} for number in range(1000)]
    made = pod("p", 1, version=101)
    gang = {"jobset.sigs.k8s.io/jobset-name": "train"}
    metadata = msgspec.structs.replace(made.metadata, labels={str(number): "" for number in range(1000)} | gang)
    ballast = Pod(metadata, msgspec.structs.replace(made.spec, scheduling_gates=gates), made.status)
    kept = PodFeed(ClusterState()).keep(ballast)
    lean = msgspec.structs.replace(made.metadata, labels=TOO_MANY_LABELS | gang)
    assert kept == Pod(lean, msgspec.structs.replace(made.spec, scheduling_gates=gates[:1]), made.status)


def test_a_gpu_pod_keeps_its_labels() -> None:
    """PodDisruptionBudgets go by them."""
    made = pod("p", 1, labels={"app": "trainer"})
    kept = PodFeed(ClusterState()).keep(made)
    assert kept is not None and kept.metadata.labels == {"app": "trainer"}


def test_a_version_of_a_node_that_was_not_read_is_a_gap() -> None:
    """It may have had a ledger: whoever waits without a claim is fenced before there is another."""
    state = cluster(node("n1", claims=None))
    state.refresh()
    state.fences.listed(state.fences.now(), ())
    assert not state.fences.is_needed("n1")
    state.nodes.unread(named("n1", 101), gone=False)
    assert state.fences.is_needed("n1")


def test_a_list_of_what_is_known_derives_no_view_anew() -> None:
    """Thousands of nodes are listed anew whenever a watch breaks; only those that changed meanwhile are looked at."""
    pods = [pod("on-1", 1, on="n1", placed=(G,), version=90), pod("on-2", 1, on="n2", version=91)]
    state = cluster(node("n1", version=80), node("n2", version=80), *pods)
    feed, before = PodFeed(state), dict(state.views)
    heard = msgspec.structs.replace(pods[0], json_bytes=900)
    feed.changed(
        msgspec.structs.replace(heard, metadata=msgspec.structs.replace(heard.metadata, resource_version="92"))
    )
    before["n1"] = state.views["n1"]
    listed = msgspec.structs.replace(heard, json_bytes=870)
    listed = msgspec.structs.replace(listed, metadata=msgspec.structs.replace(heard.metadata, resource_version="92"))
    feed.replaced([listed, pods[1]], Listing("100"))
    state.nodes.replaced([node("n1", version=80), node("n2", version=80)], Listing("100"))
    assert [view is before[name] for name, view in state.views.items()] == [True, True]
    state.nodes.replaced([node("n1", version=80), node("n2", version=99)], Listing("110"))
    assert {name: view is before[name] for name, view in state.views.items()} == {"n1": True, "n2": False}


def test_a_version_that_comes_again_with_other_words_is_believed() -> None:
    """After a restore of etcd the same number can be another write."""
    state, feed = state_of(pod("p", 1, on="n1", version=90), at=100)
    state.nodes.replaced([node("n1", topology=None, version=100)], Listing("100"))
    feed.replaced([pod("p", 2, version=90)], Listing("100"))
    known, machine = state.pods.get("p"), state.views["n1"]
    assert known is not None and (known.gpus, known.node) == (2, None)
    assert machine.shape.topology_class is None
