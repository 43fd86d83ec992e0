"""Which pods restart together is known of those that have not ended, bound or not."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.objects.kinds import OwnerReference, Pod
from extender.cluster.pod_feed import PodFeed
from tests.extender.builders import cluster, node, pod

GROUP = "ml/leaderworkerset/serve/0"


def of_replica(item: Pod, stateful_set: str = "s1") -> Pod:
    labels = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    owners = [OwnerReference(stateful_set, controller=True, kind="StatefulSet")]
    return replace(item, metadata=replace(item.metadata, labels=labels, owner_references=owners))


def test_a_pod_counts_until_it_has_ended_or_is_gone() -> None:
    """Whether it is bound or waits."""
    bound, waits = of_replica(pod("bound", on="n1")), of_replica(pod("waits"), "s2")
    state = cluster(node("n1"), bound, waits, pod("alone"))
    members, feed = state.indexes.restart_groups.members, PodFeed(state)
    assert members(GROUP) == {"bound", "waits"}
    feed.changed(of_replica(pod("bound", on="n1", phase="Failed", version=2)))
    assert members(GROUP) == {"waits"}
    feed.deleted(waits)
    assert members(GROUP) == frozenset()


def test_a_pod_leaves_its_group_with_its_labels() -> None:
    """Somebody may edit them."""
    state = cluster(node("n1"), of_replica(pod("p1")))
    PodFeed(state).changed(pod("p1", version=2))
    assert not state.indexes.restart_groups.members(GROUP)
