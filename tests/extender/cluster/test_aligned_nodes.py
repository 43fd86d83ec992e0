"""A node whose kubelet aligns by NUMA nodes: what that kubelet takes for free decides from where it takes GPUs."""

from __future__ import annotations

import pytest

from extender.cluster.candidates.holds import Held
from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node
from tests.extender.builders import claim, cluster, gpus, node, pod, running
from topology.annotations.status_codec import encode_status
from topology.node.alignment import Policy, TopologyManager
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.placement.alignment import NOT_YET
from topology.placement.decide import Decision
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest

H100 = "hgx-h100"
G = gpus("n1", *range(8), machine_name=H100)
FIRST, SECOND = {0, 1, 2, 3}, {4, 5, 6, 7}


def aligning(
    *sick: str, also: tuple[str, ...] = (), held: dict[str, str] | None = None, claims: dict[str, str] | None = None
) -> Node:
    """Return a node of two NUMA nodes whose kubelet insists on one of them; `claims` is GPU → UID of a pod."""
    plugin = DevicePluginStatus(
        Mode.ENFORCE,
        True,
        topology_manager=TopologyManager(Policy.SINGLE_NUMA_NODE),
        also_offered=frozenset(also),
    )
    status = encode_status(NodeGpuStatus(1, tuple(GpuStatus(gpu, healthy=False) for gpu in sick), device_plugin=plugin))
    promised = tuple(claim(gpu, uid) for gpu, uid in (claims or {}).items())
    return node("n1", H100, held=held, claims=promised, status=status)


def view(*objects: object) -> NodeView:
    """Return what is known of the node among these objects."""
    return cluster(*objects).views["n1"]  # type: ignore[arg-type]


def chosen(found: Decision) -> set[int]:
    """Return the GPUs of a placement."""
    assert isinstance(found, Placement), found
    return set(found.gpus)


def test_a_pod_that_the_kubelet_would_refuse_is_not_sent_there() -> None:
    """No NUMA node has five GPUs, idle or not."""
    found = view(aligning()).decide_for("new", GpuRequest(5))
    assert isinstance(found, Rejection)
    assert found.reason is Reason.KUBELET


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_pod_waits_for_those_whose_gpus_the_kubelet_has_yet_to_hand_out(*, is_seen: bool) -> None:
    """Four GPUs of the first NUMA node are promised; before they are handed out the kubelet would give them to the next pod."""
    first = dict.fromkeys(G[:4], "first")
    held = dict.fromkeys(G[:4], "first") if is_seen else {}
    found = view(aligning(claims=first, held=held), running("first", "n1", *G[:4])).decide_for("new", GpuRequest(4))
    if is_seen:
        assert chosen(found) == SECOND
    else:
        assert found is NOT_YET


def test_a_pod_that_leaves_may_have_left_when_the_next_is_admitted() -> None:
    """The kubelet lists its GPUs for as long as it runs; when that ends nobody knows."""
    leaving = pod("first", 4, on="n1", placed=G[:4], phase="Running", deleting=True)
    first = dict.fromkeys(G[:4], "first")
    assert view(aligning(claims=first, held=first), leaving).decide_for("new", GpuRequest(4)) is NOT_YET


def test_a_sick_gpu_counts_only_where_the_kubelet_gives_it_away_all_the_same() -> None:
    """In mode enforce it learns of it; another device plugin may not have noticed."""
    assert chosen(view(aligning(G[0])).decide_for("new", GpuRequest(4))) == SECOND
    assert view(aligning(G[0], also=(G[0],))).decide_for("new", GpuRequest(4)) is NOT_YET


def test_a_pod_keeps_its_claims_where_the_kubelet_would_give_it_those() -> None:
    """A Binding that is tried again asks the same question."""
    own = dict.fromkeys(G[:2], "new")
    assert chosen(view(aligning(claims=own), pod("new", 2)).decide_for("new", GpuRequest(2))) == {0, 1}
    far = dict.fromkeys(G[4:6], "new")
    moved = view(aligning(claims=far), pod("new", 2)).decide_for("new", GpuRequest(2))
    assert chosen(moved) < FIRST


def test_gpus_that_are_held_for_a_pod_are_its_own_only_where_the_kubelet_takes_them() -> None:
    """A hold on the second NUMA node is no use while the first has enough."""
    seen = view(aligning())
    assert chosen(seen.decide_on(Held(0b0000_0011), GpuRequest(2))) == {0, 1}
    assert isinstance(seen.decide_on(Held(0b0011_0000), GpuRequest(2)), Rejection)


def test_pods_are_counted_as_if_each_were_admitted_before_the_next() -> None:
    """Two of three GPUs, one on each NUMA node."""
    assert view(aligning()).how_many_fit("new", GpuRequest(3)) == 2
