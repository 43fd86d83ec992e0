"""Pods for which GPUs are held start there as soon as the node has all that they ask."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import Node, NodeSpec, Pod
from extender.features.queue.reserved import reserved_plans
from extender.features.queue.waiting import read_queue
from tests.extender.builders import PAIRS, at, cluster, gpus, node, pod
from tests.extender.features.queue.queued import of_gang, queued
from tests.extender.planning.gangs import racks
from tests.extender.shares import share, sharer, sharing_node
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


@pytest.mark.parametrize(("used_gib", "starts"), [(29, False), (19, True)])
def test_a_share_starts_only_beside_what_is_held_of_the_gpu_for_others(used_gib: int, starts: bool) -> None:
    """Of 39 GiB 10 are held for each of two pods. While only 10 are left, a third pod is still to leave."""
    (gpu,) = gpus("a", 0)
    item = sharer("waits", 10)
    item = replace(item, spec=replace(item.spec, scheduling_gates=[{"name": keys.PLAN_GATE}]))
    state = cluster(sharing_node(share(gpu, "third", used_gib), name="a"), item)
    for name in ("waits", "another"):
        state.holds.put(name, Hold("a", FIRST, 60.0, shares=((0, 10, ""),), is_firm=True))
    queue = finish(read_queue(state, at(), frozenset()))
    assert bool([*reserved_plans(state, queue, at())]) == starts


def gang_started(*waits: Pod, held: dict[str, str], nodes: list[Node], others: tuple[Pod, ...] = ()) -> list[str]:
    """Return the nodes on which a gang would start; all GPUs of these nodes are held for its pods."""
    state = cluster(*nodes, *waits, *others)
    for name, where in held.items():
        state.holds.put(name, Hold(where, 0xFF, 60.0, is_firm=True))
    queue = finish(read_queue(state, at(), frozenset()))
    return sorted(place.node for start in reserved_plans(state, queue, at()) for place in start.assignments)


def test_a_gang_starts_once_the_gpus_of_all_its_pods_are_free() -> None:
    """GPUs that are held for some pods only, or of which a running pod has one, are not enough."""
    waits, nodes = [of_gang(f"g{number}", 8) for number in range(2)], [node("a", PAIRS), node("b", PAIRS)]
    held = {"g0": "a", "g1": "b"}
    leaves = pod("leaves", 1, on="b", placed=gpus("b", 0, machine_name=PAIRS), phase="Running")
    assert gang_started(*waits, held=held, nodes=nodes) == ["a", "b"]
    assert gang_started(*waits, held={"g0": "a"}, nodes=nodes) == []
    assert gang_started(*waits, held=held, nodes=nodes, others=(leaves,)) == []
    elastic = [of_gang(f"g{number}", 8, least=1) for number in range(2)]
    assert gang_started(*elastic, held=held, nodes=nodes, others=(leaves,)) == ["a"]


def test_one_more_pod_in_the_gang_does_not_keep_it_from_its_places() -> None:
    """It came after GPUs were held for as many pods as the gang has by its own words."""
    waits, held = [of_gang(f"g{number}", 8) for number in range(3)], {"g0": "a", "g1": "b"}
    assert gang_started(*waits, held=held, nodes=[node("a", PAIRS), node("b", PAIRS)]) == ["a", "b"]


def test_a_gang_does_not_start_in_two_racks_if_it_requires_one_by_now() -> None:
    """GPUs were held for it before."""
    nodes = racks(PAIRS, r1=1, r2=1)
    held = {"g0": "r1-0", "g1": "r2-0"}
    assert len(gang_started(*[of_gang(name, 8) for name in held], held=held, nodes=nodes)) == 2
    required = {keys.GROUP: "g", keys.GROUP_SIZE: "2", keys.GANG: "required", keys.GROUP_AFFINITY: "required-rack"}
    assert gang_started(*[queued(name, 8, wants=required) for name in held], held=held, nodes=nodes) == []
