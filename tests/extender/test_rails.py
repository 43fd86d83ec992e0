"""Pods of a group come to the same rails on like nodes, and away from NICs that other groups use, where that costs nothing."""

from __future__ import annotations

import pytest

from extender.binding.bind import bind
from extender.binding.intents import SwapLedger
from extender.binding.outcome import BindTarget
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.rails import RailsOfGroup
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.builders import args, at, claim, cluster, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import decode_ledger
from topology.annotations.status_codec import encode_status
from topology.node.status import DevicePluginStatus, Mode, NodeGpuStatus
from topology.placement.rails import NO_RAILS, Rails

H100 = "hgx-h100"
OBSERVE = encode_status(NodeGpuStatus(1, (), device_plugin=DevicePluginStatus(Mode.OBSERVE, ready=True)))


def member(name: str, count: int, group: str = "llama") -> Pod:
    return pod(name, count, wants={keys.GROUP: group})


def with_pod(
    name: str, owner: str, *at_gpus: int, group: str | None = "llama", machine: str = H100
) -> list[Node | Pod]:
    """Return a node on which one pod runs, and that pod."""
    uuids = gpus(name, *at_gpus, machine_name=machine)
    wants = {keys.GROUP: group} if group else None
    runs = pod(owner, len(uuids), on=name, placed=uuids, wants=wants, phase="Running", terminated=False)
    return [node(name, machine, claims=tuple(claim(gpu, owner) for gpu in uuids)), runs]


def explained(state: ClusterState, name: str, on: str) -> tuple[int, ...]:
    told = inspection.explain(state, "ml", name, at())
    assert told is not None
    return tuple(sorted(next(fit for fit in told.fits if fit.node == on).indexes))


def bound(state: ClusterState, name: str, on: str, machine: str = H100) -> tuple[int, ...]:
    """Return the GPUs that bind claims; nothing is written."""
    steps = bind(state, BindTarget("ml", name, name, on), at, deadline=30.0)
    intent = next(steps)
    steps.close()
    assert isinstance(intent, SwapLedger)
    mine = {each.gpu for each in decode_ledger(intent.ledger).claims if each.uid == name}
    return tuple(i for i, gpu in enumerate(gpus(on, *range(8), machine_name=machine)) if gpu in mine)


@pytest.mark.parametrize("first", [(0, 1), (2, 3), (1, 2, 3), (5, 7), (4, 5, 6, 7)])
def test_the_second_member_gets_the_rails_of_the_first(first: tuple[int, ...]) -> None:
    """Two DGX H100, one pod of the group on each: explain, prioritize's hold and bind name the same GPUs on both."""
    asked = member("p", len(first))
    state = cluster(asked, node("n2", H100), *with_pod("n1", "w0", *first))
    assert explained(state, "p", "n2") == first
    assert bound(state, "p", "n2") == first
    filter_nodes(state, args(asked, "n2"), at())
    prioritize_nodes(state, args(asked, "n2"), at())
    assert state.holds.own("p", "n2", 0.0) == sum(1 << i for i in first)


def test_a_member_on_its_way_counts_where_it_will_probably_be() -> None:
    """The first pod has been through prioritize and is not bound; no claim says where it goes, only the hold."""
    first, second = member("w0", 2), member("w1", 2)
    state = cluster(first, second, *with_pod("n1", "other", 0, 1, group=None), node("n2", H100))
    filter_nodes(state, args(first, "n1"), at())
    assert state.holds.own("w0", "n1", 0.0) == 0b1100
    assert explained(state, "w1", "n2") == bound(state, "w1", "n2") == (2, 3)


def test_most_members_decide() -> None:
    """One on the rails 0 and 1, two on 6 and 7."""
    parts = [*with_pod("n1", "w0", 0, 1), *with_pod("n2", "w1", 6, 7), *with_pod("n3", "w2", 6, 7)]
    assert explained(cluster(member("p", 2), node("n4", H100), *parts), "p", "n4") == (6, 7)


def test_a_member_that_has_gone_does_not_count() -> None:
    """A pod that is being deleted will be on no rail."""
    first, w0 = with_pod("n1", "w0", 6, 7)
    leaving = pod("w0", 2, on="n1", wants={keys.GROUP: "llama"}, phase="Running", deleting=True)
    assert explained(cluster(member("p", 2), node("n2", H100), first, w0), "p", "n2") == (6, 7)
    assert explained(cluster(member("p", 2), node("n2", H100), first, leaving), "p", "n2") == (0, 1)


@pytest.mark.parametrize(
    ("machine", "group"), [("dgx-a100", "llama"), (H100, "other"), (H100, None)], ids=["unlike", "other", "no group"]
)
def test_neither_unlike_machines_nor_other_groups_are_aligned_to(machine: str, group: str | None) -> None:
    """The rails of another kind of machine mean nothing here, and other pods' rails are theirs."""
    state = cluster(member("p", 2), node("n2", H100), *with_pod("n1", "w0", 6, 7, group=group, machine=machine))
    assert explained(state, "p", "n2") == (0, 1)


def test_pods_without_a_group_and_machines_without_nics_ask_nothing() -> None:
    """And where NVIDIA's plugin chooses nothing can be aligned."""
    pairs, h100, observed = node("n2", "a100-pcie-8-pairs"), node("n3", H100), node("n4", H100, status=OBSERVE)
    alone = pod("alone", 2)
    state = cluster(member("p", 2), alone, pairs, h100, observed, *with_pod("n1", "w0", 6, 7))
    of_group, of_none = (RailsOfGroup(state, uid, 0.0) for uid in ("p", "alone"))
    assert [of_group.on(state.views[name]) for name in ("n2", "n3", "n4")] == [NO_RAILS, Rails(0b1100_0000), NO_RAILS]
    assert of_none.on(state.views["n3"]) is NO_RAILS


def test_a_rail_that_another_group_uses_comes_last() -> None:
    """On a DGX A100 two GPUs share two NICs. GPU 1 is beside a pod of a group on two nodes, so a new group begins at GPU 2."""
    busy = [*with_pod("n1", "w0", 0, machine="dgx-a100"), *with_pod("n2", "w1", 0, machine="dgx-a100")]
    state = cluster(member("p", 1, group="new"), *busy)
    assert explained(state, "p", "n1") == bound(state, "p", "n1", "dgx-a100") == (2,)
    alone = cluster(member("p", 1, group="new"), *busy[:2])
    assert explained(alone, "p", "n1") == bound(alone, "p", "n1", "dgx-a100") == (1,)


def test_what_is_on_the_node_itself_is_busy_and_not_preferred() -> None:
    """A member on the node has its NICs in use, so the rails of the members elsewhere count; a pod is not in its own way."""
    parts = [*with_pod("n1", "w0", 0, machine="dgx-a100"), *with_pod("n2", "w1", 2, machine="dgx-a100")]
    state = cluster(member("p", 1), *parts)
    assert RailsOfGroup(state, "p", 0.0).on(state.views["n1"]) == Rails(preferred=0b1100, busy=0b0011)
    assert RailsOfGroup(state, "w0", 0.0).on(state.views["n1"]) == Rails(preferred=0b1100)


def test_a_node_says_which_nic_is_shared_with_whom() -> None:
    """Beside the GPU, not beside that of the pod itself; a group on one node uses no NIC."""
    busy = [*with_pod("n1", "w0", 0, machine="dgx-a100"), *with_pod("n2", "w1", 0, machine="dgx-a100")]
    for parts, expected in ((busy, "shares NIC mlx5_0, mlx5_1 with ml/w0"), (busy[:2], "")):
        shown = inspection.node(cluster(*parts), "n1", at())
        assert shown is not None
        assert [gpu.line for gpu in shown.gpus] == ["", expected, *[""] * 6]
