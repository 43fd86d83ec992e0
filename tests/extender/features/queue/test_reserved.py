"""Pods for which GPUs are held start there as soon as the node has all that they ask."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import Node, NodeSpec, Pod
from extender.features.queue.reserved import reserved_plans
from extender.features.queue.waiting import read_queue
from tests.extender.builders import PAIRS, at, cluster, gpus, node, pod
from topology.annotations import keys
from topology.effort import finish

FIRST = 0b1


def gated(name: str, cpu: str = "") -> Pod:
    item = pod(name, 1, cpu=cpu)
    return replace(item, spec=replace(item.spec, scheduling_gates=[{"name": keys.PLAN_GATE}]))


def started(item: Node, *others: Pod) -> list[str]:
    """Return the nodes on which the pod for which the first GPU is held would start."""
    state = cluster(item, gated("waits", cpu="4"), *others)
    state.holds.put("waits", Hold("a", FIRST, 60.0, is_firm=True))
    queue = finish(read_queue(state, at(), frozenset()))
    return [assignment.node for start in reserved_plans(state, queue, at()) for assignment in start.assignments]


def test_a_pod_starts_where_gpus_are_held_for_it() -> None:
    """The node has what else it asks, too."""
    assert started(node("a", PAIRS, cpu="8")) == ["a"]


@pytest.mark.parametrize("why", ["cpu", "cordoned"])
def test_a_pod_does_not_start_where_something_else_is_missing(why: str) -> None:
    """Its GPUs are free; kube-scheduler would not bind it."""
    item = node("a", PAIRS, cpu="8")
    if why == "cordoned":
        assert started(replace(item, spec=NodeSpec(unschedulable=True))) == []
    else:
        hungry = pod("hungry", 1, on="a", placed=gpus("a", 5, machine_name=PAIRS), phase="Running", cpu="6")
        assert started(item, hungry) == []
