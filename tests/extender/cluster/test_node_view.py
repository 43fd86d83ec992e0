"""What a node has to give."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cluster.candidates.openness import LEDGER_MISSING
from extender.cluster.objects.kinds import Node, Pod
from tests.extender.builders import PAIRS, claim, cluster, free, gpus, node, pod, running
from topology.annotations.codec import digest
from topology.annotations.records import Holder, Observed, Sharer, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.links import Affinity
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.placement.verdict import UNKNOWN_GPUS, Placement, Rejection
from topology.request.gpu_request import GpuRequest

ALL = tuple(range(8))
G = gpus("n1", *ALL)


def test_everything_is_free_on_an_idle_node() -> None:
    """No claim, no pod, no complaint."""
    assert free(cluster(node())) == ALL


def test_a_namesake_that_stopped_on_another_node_frees_nothing_here() -> None:
    """Pods of a StatefulSet have their names in turn; one that was deleted by force may run on where it was."""
    state = cluster(node(held={G[6]: "web-0"}), node("n2"))
    last = pod("web-0", on="n2", phase="Succeeded", terminated=True, uid="second")
    state.pods.changed(last)
    state.pods.deleted(last)
    assert free(state) == (0, 1, 2, 3, 4, 5, 7)


@pytest.mark.parametrize(
    ("objects", "taken"),
    [
        ((node(claims=(claim(G[2], "p1"),)), running("p1", "n1", G[2])), {2}),
        ((node(claims=(claim(G[2], "p1"),)), pod("p1")), {2}),
        ((node(claims=(claim(G[2], "p1"),)),), {2}),
        ((node(), running("p1", "n1", G[4], G[5])), {4, 5}),
        ((node(sick=(G[7],)),), {7}),
        ((node(held={G[6]: "stranger"}),), {6}),
        ((node(claims=(claim("GPU-that-is-lost", "p1"),)), running("p1", "n1", "GPU-that-is-lost")), set()),
    ],
    ids=["claimed", "claimed by an unbound pod", "claimed by an unseen pod", "placed", "sick", "busy", "lost"],
)
def test_a_gpu_in_use_is_not_free(objects: tuple[Node | Pod, ...], taken: set[int]) -> None:
    """Claim, placement record, health and observation each suffice."""
    assert free(cluster(*objects)) == tuple(position for position in ALL if position not in taken)


def test_a_gpu_that_is_held_in_parts_is_free_when_its_last_sharer_is_gone() -> None:
    """Also where the first of them has stopped, and the agent has not reported since."""
    sharers = tuple(Sharer("ml", name, "main") for name in ("gone", "stays"))
    observed = encode_observed(Observed({G[2]: Holder("ml", "gone", "main")}, shared={G[2]: sharers}))
    gone = pod("gone", on="n1", phase="Succeeded", terminated=True)
    shown = node(observed=observed)
    assert 2 not in free(cluster(shown, gone, pod("stays", on="n1", phase="Running", terminated=False)))
    assert 2 in free(cluster(shown, gone, pod("stays", on="n1", phase="Succeeded", terminated=True)))


@pytest.mark.parametrize(
    "owner",
    [
        pod("p1", on="n2", phase="Running"),
        pod("p1", on="n1", phase="Succeeded", terminated=True),
        pod("p1", on="n1", phase="Failed", deleting=True, terminated=True),
        pod("p1", phase="Failed"),
    ],
    ids=["bound elsewhere", "ended", "deleted and ended", "ended before it was bound"],
)
def test_a_dead_claim_does_not_hold_its_gpu(owner: Pod) -> None:
    """What is proven counts at once, before the ledger is rewritten."""
    assert free(cluster(node(claims=(claim(G[0], "p1"),)), node("n2"), owner)) == ALL


@pytest.mark.parametrize(
    "owner",
    [
        pod("p1", on="n1", phase="Running", deleting=True),
        pod("p1", on="n1", phase="Running", terminated=True),
        pod("p1", on="n1", phase="Running", deleting=True, terminated=True),
        pod("p1", deleting=True),
    ],
    ids=["being deleted", "between two starts", "being deleted between two starts", "unbound and being deleted"],
)
def test_a_doubtful_claim_holds_its_gpu(owner: Pod) -> None:
    """A deletion timestamp proves nothing, and a crashed container starts again."""
    assert 0 not in free(cluster(node(claims=(claim(G[0], "p1"),)), owner))


def test_a_final_phase_alone_proves_nothing() -> None:
    """Others than the kubelet write it, too, and containers may still run."""
    state = cluster(node(claims=(claim(G[0], "p1"),), ready=False), running("p1", "n1", G[0]))
    state.pods.changed(pod("p1", on="n1", placed=(G[0],), phase="Failed", version=2))
    assert 0 not in free(state)
    state.nodes.changed(node(claims=(claim(G[0], "p1"),), version=2))
    state.pods.changed(pod("p1", on="n1", placed=(G[0],), phase="Failed", version=3))
    assert 0 not in free(state)
    state.pods.changed(pod("p1", on="n1", placed=(G[0],), phase="Failed", terminated=True, version=4))
    assert 0 in free(state)


def test_two_live_pods_with_one_gpu_are_a_conflict_until_both_are_gone() -> None:
    """One of them leaving does not make the GPU free."""
    state = cluster(node(claims=(claim(G[0], "p1"),)), running("p1", "n1", G[0]), running("p2", "n1", G[0]))
    assert set(state.views["n1"].conflicts) == {G[0]}
    for name, still_free in (("p1", False), ("p2", True)):
        state.pods.changed(pod(name, on="n1", placed=(G[0],), phase="Succeeded", terminated=True, version=2))
        assert (0 in free(state)) is still_free
    assert not state.views["n1"].conflicts


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"topology": None}, "no GPU topology is published"),
        ({"topology": "{"}, "GPU topology cannot be read"),
        ({"status": "[]"}, "GPU status cannot be read"),
        ({"observed": '{"v":1}'}, "GPU report cannot be read"),
        ({"ledger": '{"v":1,"generation":-1}'}, "GPU ledger cannot be read"),
        ({"ledger": '{"v":7,"claims":[]}'}, "GPU ledger is of a version that is not understood"),
        ({"digest": digest("something else")}, "GPU topology does not match its digest"),
    ],
)
def test_a_bad_payload_closes_its_node_and_no_other(broken: dict[str, Any], reason: str) -> None:
    """The reason is the same for all such nodes, so that kube-scheduler can count them."""
    state = cluster(node("n1", **broken), node("n2"))
    assert (state.views["n1"].shape.closed, free(state)) == (reason, ())
    assert free(state, "n2") == ALL


def test_a_missing_ledger_is_not_an_empty_one() -> None:
    """The pods that are bound there say what it should hold."""
    state = cluster(node(claims=None), running("p1", "n1", G[3]))
    assert (state.views["n1"].shape.closed, free(state)) == (LEDGER_MISSING, ())
    assert [(c.gpu, c.uid, c.container) for c in state.views["n1"].unledgered] == [(G[3], "p1", "main")]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (node(claims=None, version=2), "GPU ledger is missing and is being written"),
        (node(ledger='{"v":1,"generation":7,"cla', version=2), "GPU ledger cannot be read"),
        (node(claims=(), version=2), "GPU ledger was changed by somebody else and is being rebuilt"),
    ],
    ids=["wiped", "truncated", "edited by hand"],
)
def test_a_ledger_that_a_stranger_touched_still_stands_and_closes_its_node(changed: Node, reason: str) -> None:
    """C15: nothing rests on it before it is rebuilt, and nothing of what it said is forgotten."""
    state = cluster(node(claims=(claim(G[0], "p1"),)), pod("p1"))
    state.nodes.changed(changed)
    assert (state.views["n1"].shape.closed, free(state)) == (reason, ())
    assert [kept.uid for kept, _ in state.views["n1"].claims] == ["p1"]


def test_a_new_node_is_closed_until_it_has_a_ledger() -> None:
    """It may have had one under the same name, which nobody here has heard of."""
    state = cluster(node(claims=None), pod("p1"))
    view = state.views["n1"]
    assert (view.shape.closed, view.is_broken, view.is_new) == (LEDGER_MISSING, True, True)


def test_a_machine_without_a_topology_needs_no_ledger() -> None:
    """Most nodes of a cluster have no GPUs."""
    assert not cluster(node(claims=None, topology=None)).views["n1"].is_broken


def test_a_pod_that_bypassed_us_counts_before_anybody_knows_its_gpus() -> None:
    """C18: it holds two of the free GPUs, whichever; the kubelet would refuse a pod of more than six."""
    state = cluster(node(), pod("stranger", 2, on="n1", phase="Running"))
    shape = state.views["n1"].shape
    assert (free(state), shape.hidden) == (ALL, 2)
    assert isinstance(shape.decide(GpuRequest(6)), Placement)
    assert isinstance(shape.decide(GpuRequest(7)), Rejection)
    state.nodes.changed(node(held={G[0]: "stranger"}, version=2))
    assert (free(state), state.views["n1"].shape.hidden) == (ALL[1:], 1)
    state.nodes.changed(node(held={G[0]: "stranger", G[1]: "stranger"}, version=3))
    assert (free(state), state.views["n1"].shape.hidden) == (ALL[2:], 0)


@pytest.mark.parametrize("demand", [GpuRequest(2, required=Affinity.NVLINK), GpuRequest(2, min_bandwidth_gb_per_s=1.0)])
def test_nothing_is_promised_of_gpus_among_which_some_are_hidden(demand: GpuRequest) -> None:
    """The kubelet may have to give others than the planned ones, which nobody can vouch for."""
    verdict = cluster(node(), pod("stranger", 2, on="n1")).views["n1"].shape.decide(demand)
    assert isinstance(verdict, Rejection)
    assert verdict.message == UNKNOWN_GPUS


def test_a_gpu_on_which_processes_run_that_no_container_explains_is_not_free() -> None:
    """The agent counted them."""
    observed = encode_observed(Observed({}, foreign_processes={G[4]: 1}))
    assert 4 not in free(cluster(node(observed=observed)))


def test_what_the_agent_saw_of_a_stopped_pod_is_out_of_date() -> None:
    """An agent that is slow, or away, does not keep a GPU of a pod that is proven to have stopped."""
    state = cluster(node(held={G[0]: "p1"}), running("p1", "n1", G[0]))
    last = pod("p1", on="n1", placed=(G[0],), phase="Failed", deleting=True, terminated=True, version=2)
    state.pods.changed(last)
    assert 0 in free(state)
    state.pods.deleted(last)
    assert 0 in free(state)


def test_mig_parents_are_never_free() -> None:
    """Their slices are somebody else's to give."""
    status = encode_status(NodeGpuStatus(1, (GpuStatus(G[5], mig_enabled=True),)))
    assert 5 not in free(cluster(node(status=status)))


def test_nodes_that_are_wired_alike_share_one_class() -> None:
    """What is compiled and planned for one is known for all."""
    state = cluster(node("n1"), node("n2"), node("n3", PAIRS))
    classes = {name: view.shape.topology_class for name, view in state.views.items()}
    assert classes["n1"] is classes["n2"]
    assert classes["n1"] is not classes["n3"]


def test_a_doubtful_gpu_that_is_not_free_makes_no_other_shape() -> None:
    """Nodes on which the same can be had are one node to filter and prioritize."""
    doubts = {"n1": 0, "n2": None, "n3": 1}
    built = []
    for name, doubtful in doubts.items():
        uuids = gpus(name, *ALL)
        states = () if doubtful is None else (GpuStatus(uuids[doubtful], doubtful=True),)
        built.append(node(name, claims=(claim(uuids[0], name),), status=encode_status(NodeGpuStatus(1, states))))
    views = cluster(*built).views
    assert views["n1"].shape == views["n2"].shape != views["n3"].shape


def test_where_another_plugin_chooses_the_worst_that_it_may_choose_counts() -> None:
    """Five GPUs of the cube can form an NVLink ring; NVIDIA's plugin never takes those, and ours does."""
    request = GpuRequest(5, required=Affinity.NVLINK)
    fits: dict[Mode, Placement | Rejection] = {}
    for mode in Mode:
        status = encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(mode, ready=True)))
        fits[mode] = cluster(node("n1", "dgx-1v", status=status)).views["n1"].shape.decide(request)
    assert isinstance(fits[Mode.ENFORCE], Placement)
    assert isinstance(fits[Mode.OBSERVE], Rejection)
