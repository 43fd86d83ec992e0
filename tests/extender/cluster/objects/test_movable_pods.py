"""A pod says itself whether it may move; of others the configuration says it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.objects.kept_pods import lean
from extender.cluster.objects.kinds import OwnerReference, Pod
from extender.cluster.objects.movable_pods import OPTED_IN, MovablePods
from extender.cluster.objects.pod_demand import asked_by
from tests.extender.builders import pod
from topology.annotations import keys


def batch_pod(**wants: str) -> Pod:
    """Return a running pod of a CloneSet in the namespace `ml`, with the PriorityClass `batch`."""
    built = pod("p", 1, on="n1", wants=wants)
    owners = [OwnerReference("u", controller=True, kind="CloneSet"), OwnerReference("v", kind="Queue")]
    return replace(
        built,
        metadata=replace(built.metadata, owner_references=owners),
        spec=replace(built.spec, priority_class_name="batch", node_selector={"a": "b"}),
    )


@pytest.mark.parametrize(
    ("movable", "is_named"),
    [
        (OPTED_IN, False),
        (MovablePods(namespaces=("web", "m?")), True),
        (MovablePods(namespaces=("*",)), True),
        (MovablePods(namespaces=("m",)), False),
        (MovablePods(priority_classes=("batch",)), True),
        (MovablePods(priority_classes=("production",)), False),
        (MovablePods(owner_kinds=("CloneSet",)), True),
        (MovablePods(owner_kinds=("Queue",)), False),
        (MovablePods(("ml",), ("batch",), ("CloneSet",)), True),
        (MovablePods(("ml",), ("batch",), ("ReplicaSet",)), False),
        (MovablePods(("ml",), ("production",), ("CloneSet",)), False),
    ],
)
def test_all_lists_that_are_not_empty_have_to_name_the_pod(movable: MovablePods, is_named: bool) -> None:
    """An annotation goes first. Of a named pod it is kept where it may go, and what it is named by."""
    item = batch_pod()
    kept = lean(item, asked_by(item), movable)
    assert movable.include(item) == movable.include(kept) == is_named
    assert (kept.spec.node_selector is not None, kept.spec.priority_class_name == "batch") == (is_named, is_named)
    assert not movable.include(batch_pod(**{keys.MOVABLE: "false"}))
    assert not movable.include(batch_pod(**{keys.MOVABLE: "perhaps"}))
    assert movable.include(batch_pod(**{keys.MOVABLE: "true"}))
