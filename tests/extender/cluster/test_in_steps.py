"""Lists and views are worked out in steps, and nobody who reads in between sees a half of anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from extender.binding.release import ClaimTimers
from extender.cluster import views
from extender.cluster.objects.versions import Listing
from extender.cluster.pod_feed import PodFeed
from extender.cluster.sickness import stricken_pods
from extender.cluster.state import ClusterState
from extender.telemetry.gauges import gauges_of
from tests.extender.builders import DGX, claim, cluster, gpus, node, pod
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

NODES = [f"n{number}" for number in range(6)]
OLD, NEW = Listing("100"), Listing("200")


def before() -> ClusterState:
    """Build six nodes, with a pod on each."""
    return cluster(
        *(node(name, version=80) for name in NODES),
        *(pod(f"on-{name}", 1, on=name, placed=gpus(name, 0), version=80) for name in NODES),
    )


def nodes_anew(state: ClusterState) -> Iterator[None]:
    """List another topology of one node, and one node less."""
    objects = [node("n0", machine_name="dgx-1v", version=190), *(node(name, version=80) for name in NODES[1:-1])]
    return state.nodes.replacing(objects, NEW)


def pods_anew(state: ClusterState) -> Iterator[None]:
    """List a pod less, and a new one."""
    objects = [pod(f"on-{name}", 1, on=name, placed=gpus(name, 0), version=80) for name in NODES[1:]]
    return PodFeed(state).replacing([*objects, pod("new", 2, on="n0", placed=gpus("n0", 4, 5), version=190)], NEW)


def known(state: ClusterState) -> tuple[object, ...]:
    """Return all that a verb reads."""
    seen = {name: (view.uuids, view.shape.free, view.claims) for name, view in state.views.items()}
    return seen, sorted((each.uid, each.node, each.placed) for each in state.pods)


@pytest.mark.parametrize("anew", [nodes_anew, pods_anew])
def test_a_list_is_seen_whole_or_not_at_all(anew: Callable[[ClusterState], Iterator[None]]) -> None:
    """Until its last step all is as it was, whoever looks."""
    state = before()
    was, steps = known(state), 0
    for _ in anew(state):
        assert known(state) == was
        steps += 1
    assert steps >= len(NODES) - 1
    assert known(state) != was


def test_a_list_in_steps_says_what_it_says_in_one_piece() -> None:
    """Of nodes and of pods."""
    stepwise, at_once = before(), before()
    for anew in (nodes_anew, pods_anew):
        for _ in anew(stepwise):
            pass
    at_once.nodes.replaced(
        [node("n0", machine_name="dgx-1v", version=190), *(node(name, version=80) for name in NODES[1:-1])], NEW
    )
    PodFeed(at_once).replaced(
        [
            *(pod(f"on-{name}", 1, on=name, placed=gpus(name, 0), version=80) for name in NODES[1:]),
            pod("new", 2, on="n0", placed=gpus("n0", 4, 5), version=190),
        ],
        NEW,
    )
    assert known(stepwise) == known(at_once)


@pytest.mark.parametrize(("version", "stays"), [(300, True), (150, False)], ids=["later than the list", "earlier"])
def test_a_live_reply_that_comes_in_between_counts_as_in_any_list(version: int, *, stays: bool) -> None:
    """It stays if it is of a later write than the list, and is replaced else."""
    state = before()
    nodes = state.nodes.replacing([node(name, version=190) for name in NODES], NEW)
    pods = state.pods.replacing([pod(f"on-{name}", 1, on=name, version=190) for name in NODES], NEW)
    for steps in (nodes, pods):
        for _ in NODES:
            next(steps)
    state.nodes.learn(node("n0", version=version))
    state.pods.learn(pod("on-n0", 1, on="n0", version=version))
    for steps in (nodes, pods):
        for _ in steps:
            pass
    machine, pod_now = state.nodes.get("n0"), state.pods.get("on-n0")
    assert machine is not None and pod_now is not None
    expected = str(version) if stays else "190"
    assert machine.node.metadata.resource_version == expected
    assert pod_now.pod.metadata.resource_version == expected


def test_a_call_between_two_steps_sees_all_that_is_known() -> None:
    """Whoever reads has the rest of the views derived at once; nothing is left to do then."""
    state = before()
    for name in NODES:
        state.nodes.changed(node(name, machine_name="dgx-1v", version=90))
    steps = state.refreshing()
    next(steps)
    next(steps)
    assert {view.shape.topology_class for view in state.views.values()} == {state.views["n0"].shape.topology_class}
    assert len(state.views["n0"].uuids) == 8
    state.nodes.changed(node("n3", topology=None, version=91))
    assert state.views["n3"].uuids == ()
    assert list(steps) == []


def test_several_changes_of_a_node_are_one_view() -> None:
    """And who derives them is called once for all changes, until there is a next one."""
    state, calls = before(), list[None]()
    state.refresh()
    state.call_when_outdated(lambda: calls.append(None))
    for version in (90, 91, 92):
        state.nodes.changed(node("n1", machine_name="dgx-1v", version=version))
    assert len(calls) == 1
    assert len(list(state.refreshing())) == 1
    state.nodes.changed(node("n1", version=93))
    assert len(calls) == 2


def test_nothing_is_derived_before_all_is_listed() -> None:
    """A GPU without a known owner proves nothing then."""
    state = ClusterState()
    state.nodes.replaced([node("n1")], OLD)
    assert list(state.refreshing()) == []
    state.pods.replaced([], OLD)
    assert len(list(state.refreshing())) == 1
    assert state.views["n1"].uuids == gpus("n1", *range(8), machine_name=DGX)


def test_a_node_whose_view_cannot_be_derived_has_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of conditions look up the view of each node in them."""
    (gpu,) = gpus("n1", 0)
    sick = encode_status(NodeGpuStatus(1, (GpuStatus(gpu, healthy=False, sick_since=1),)))
    state = cluster(node("n1", claims=(claim(gpu, "unbound"),), status=sick), pod("unbound"))
    state.refresh()
    assert state.conditions.unsettled == state.conditions.sick == {"n1"}
    monkeypatch.setattr(views, "derive", Mock(side_effect=RuntimeError("broken")))
    state.nodes.changed(node("n1", version=2))
    with pytest.raises(RuntimeError, match="broken"):
        state.refresh()
    assert gauges_of(state)["nodes_unsettled"] == 0
    assert ClaimTimers().due(state, 0.0) == []
    assert list(stricken_pods(state)) == []
