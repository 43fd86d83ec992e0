"""Pods that wait for a scheduler stand in lines, one for each namespace."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.objects.kinds import Pod
from tests.extender.builders import cluster, node, pod


def waits(name: str, namespace: str, scheduler: str, priority: int = 0) -> Pod:
    item = pod(name, 1, priority=priority)
    metadata, spec = item.metadata, item.spec
    return replace(item, metadata=replace(metadata, namespace=namespace), spec=replace(spec, scheduler_name=scheduler))


def test_the_line_of_one_namespace_has_its_pods_alone() -> None:
    """In their order, and of one scheduler."""
    pods = [waits("low", "a", "s"), waits("high", "a", "s", 1), waits("other", "b", "s"), waits("default", "a", "t")]
    waiting = cluster(node("n1"), *pods).indexes.waiting
    assert [*waiting.of_namespace("a", "s")] == ["high", "low"]
    assert [*waiting.of_namespace("nobody", "s"), *waiting.of_namespace("a", "nobody")] == []
