"""What is shown is what is decided: states of GPUs, placements, and the reasons for waiting."""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import NodeCondition
from extender.cluster.objects.kinds import NodeStatus as NodeHealth
from extender.cluster.state import ClusterState
from extender.features.dra.claim_spec import OUR_CLASS
from extender.inspect import faults, inspection
from extender.inspect.status import status
from extender.kubectl.claim_holdings import recognise
from extender.kubectl.form import Form
from extender.kubectl.output import print_node
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.dra import gpu, read_slice, resource_slice
from tests.extender.builders import DGX, PAIRS, args, at, claim, cluster, gpus, node, pod, running
from topology.annotations import keys
from topology.annotations.records import Holder, Observed, Sharer, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.offers import OfferForm, ResourceOffer
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

NVLINK = {keys.REQUIRED_AFFINITY: "nvlink"}


def states(state: ClusterState, name: str = "n1") -> list[tuple[str, str | None]]:
    """Return state and owner of each GPU of a node."""
    (shown,) = inspection.nodes(state, [name], at())
    return [(gpu.state, gpu.pod) for gpu in shown.gpus]


def by_name(state: ClusterState, name: str) -> GpuPod:
    return next(found for found in state.pods if found.key == ("ml", name))


def test_a_gpu_is_shown_with_its_state_and_owner() -> None:
    """Claimed in the ledger, found with a container, sick, held, free: each by its own word."""
    a, b, c = gpus("n1", 0, 1, 2)
    state = cluster(node(claims=(claim(a, "p1"),), held={b: "p2"}, sick=(c,)), running("p1", "n1", a))
    state.holds.put("p3", Hold("n1", 0b1000, expires=10))
    assert states(state)[:5] == [
        ("claimed", "ml/p1"),
        ("unplanned", "ml/p2"),
        ("unusable", None),
        ("held", None),
        ("free", None),
    ]


def reasons(state: ClusterState) -> list[tuple[str, ...]]:
    """Return what is said to be wrong with each GPU of n1."""
    (shown,) = inspection.nodes(state, ["n1"], at())
    return [gpu.reasons for gpu in shown.gpus]


def test_an_unusable_gpu_says_why() -> None:
    """Sick, sliced, with a foreign process, or on a closed node; one that is only watched says so, too."""
    uuids = gpus("n1", *range(4))
    status = NodeGpuStatus(
        1,
        (
            GpuStatus(uuids[0], healthy=False, reasons=("xid 79",)),
            GpuStatus(uuids[1], healthy=False),
            GpuStatus(uuids[2], mig_enabled=True),
            GpuStatus(uuids[3], reasons=("row remap pending",)),
        ),
    )
    state = cluster(
        node(
            status=encode_status(status),
            observed=encode_observed(Observed({}, foreign_processes={gpus("n1", 4)[0]: 1})),
        )
    )
    assert reasons(state)[:6] == [
        ("xid 79",),
        (faults.NO_REASON,),
        (faults.SLICED,),
        ("row remap pending",),
        (faults.FOREIGN,),
        (),
    ]
    closed = cluster(node(status=encode_status(status), ledger="{"))
    assert reasons(closed)[0] == ("xid 79", "GPU ledger cannot be read")
    assert reasons(closed)[5] == ("GPU ledger cannot be read",)


def test_refusals_by_the_same_rule_are_one_whatever_the_figures() -> None:
    """The figures are those of the node that is the example."""
    state = cluster(node("n1", DGX), node("n2", PAIRS), pod("p1", 3, wants=NVLINK | {keys.MIN_BANDWIDTH: "900"}))
    told = inspection.explain(state, "ml", "p1", at())
    assert told is not None
    slow, far = told.refusals
    assert (slow.message, slow.remedy) == (
        "no 3 free GPUs are predicted to reach 900 GB/s",
        "wait or lower min-bandwidth",
    )
    assert (far.figures, far.example, far.nodes) == ("at most 2 do", "n2", 1)


def test_a_placement_that_the_ledger_does_not_know_is_claimed_all_the_same() -> None:
    """A pod's own record counts."""
    (a,) = gpus("n1", 0)
    assert states(cluster(node(), running("p1", "n1", a)))[0] == ("claimed", "ml/p1")


def test_free_gpus_are_counted_as_the_plan_counts_them() -> None:
    """The page and filter agree."""
    (a,) = gpus("n1", 5)
    state = cluster(node(sick=(a,)))
    (shown,) = inspection.nodes(state, ["n1"], at())
    assert shown.free == state.views["n1"].shape.free.bit_count() == 7


def test_a_closed_node_says_why_and_has_nothing_free() -> None:
    """One bad annotation is visible where it is."""
    state = cluster(node(ledger="{"))
    detail = inspection.node(state, "n1", at())
    assert detail is not None
    assert (detail.closed, detail.free) == ("GPU ledger cannot be read", 0)
    assert {gpu.state for gpu in detail.gpus} == {"unusable"}


def test_a_node_says_who_hands_out_its_gpus() -> None:
    """Mode, readiness and every reason, as its agent found them."""
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=False, reasons=("not registered with the kubelet",))
    detail = inspection.node(cluster(node(status=encode_status(NodeGpuStatus(1, device_plugin=plugin)))), "n1", at())
    assert detail is not None
    assert detail.device_plugin is not None
    assert (detail.device_plugin.mode, detail.device_plugin.ready) == ("enforce", False)
    assert detail.device_plugin.line == "mode enforce, not ready; not registered with the kubelet"


def test_a_node_tells_how_its_gpus_are_offered_and_who_shares_one(capsys: pytest.CaptureFixture[str]) -> None:
    """GPUs that are offered alike stand together; kubectl prints them."""
    whole, shared = (
        ResourceOffer("nvidia.com/gpu", OfferForm.WHOLE),
        ResourceOffer("nvidia.com/gpu.shared", OfferForm.SHARED, 4),
    )
    (a, b, c, d) = gpus("n1", 0, 1, 2, 3)
    made = {a: (whole,), b: (shared,), c: (whole,), d: ()}
    status = encode_status(NodeGpuStatus(1, tuple(GpuStatus(gpu, offers=offers) for gpu, offers in made.items())))
    sharers = (Sharer("ml", "one", "main"), Sharer("ml", "two", "main", 2), Sharer("ml", "two", "side"))
    observed = encode_observed(Observed({b: Holder("ml", "one", "main")}, shared={b: sharers}))
    detail = inspection.node(cluster(node(status=status, observed=observed)), "n1", at())
    assert detail is not None
    assert "held in parts by ml/one, ml/two" in detail.gpus[1].reasons
    print_node(detail, Form())
    printed = capsys.readouterr().out
    for line in (
        "GPUs 0, 2: whole as nvidia.com/gpu",
        "GPU 1: shared 4 ways as nvidia.com/gpu.shared",
        "GPU 3: not offered",
    ):
        assert f"offered: {line}\n" in printed


def test_a_node_shows_what_other_health_agents_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Who says what and why, and that it closes nothing as long as nobody has said so; kubectl prints it."""
    said = NodeCondition("XIDErrors", "True", "XIDErrorsPresent", "XID 79 in the kernel log")
    shown = node()
    shown = msgspec.structs.replace(shown, status=msgspec.structs.replace(shown.status, conditions=[said]))
    detail = inspection.node(cluster(shown), "n1", at())
    assert detail is not None
    (sign,) = detail.signs
    assert sign.line == "condition XIDErrors=True (AKS): XIDErrorsPresent: XID 79 in the kernel log"
    assert (sign.closes, detail.closed, detail.free) == (False, None, 8)
    print_node(detail, Form())
    assert f"said by others: {sign.line}\n\n" in capsys.readouterr().out


def test_nodes_that_have_nothing_to_do_with_gpus_are_left_out() -> None:
    """Most nodes of a cluster are not ours."""
    plain = node("n2", topology=None, status=None, claims=None)
    assert [*inspection.node_names(cluster(node("n1"), plain))] == ["n1"]
    assert [*inspection.node_names(cluster(node("gpu-1"), node("gpu-2")), "-2")] == ["gpu-2"]
    assert [*inspection.node_names(cluster(node("gpu-1"), node("gpu-2")), after="gpu-1")] == ["gpu-2"]


def test_nodes_whose_gpus_no_agent_reports_are_not_left_out() -> None:
    """A device plugin offers some there: who has just installed gputopo looks for that node first."""
    plain = node("n2", topology=None, status=None, claims=None)
    offered = msgspec.structs.replace(plain, status=NodeHealth({"nvidia.com/gpu": "8"}, plain.status.conditions))
    state = cluster(node("n1"), offered)
    assert [*inspection.node_names(state)] == ["n1", "n2"]
    (finding,) = status(state).findings
    assert (finding.what, finding.nodes) == ("no GPU is given away: no GPU topology is published", ("n2",))


def test_a_node_shows_what_its_free_gpus_are_worth() -> None:
    """The best set of each size, as the plan would choose it."""
    detail = inspection.node(cluster(node(machine_name=PAIRS)), "n1", at())
    assert detail is not None
    assert [(best.gpus, best.affinity) for best in detail.best_sets] == [(2, "nvlink"), (4, "numa-node"), (8, "system")]
    assert detail.matrix[0][:2] == ("X", "NV12")


@pytest.mark.parametrize(("free", "last"), [(0, "no GPU is free"), (1, "one GPU is free")])
def test_a_node_without_sets_ends_with_how_many_gpus_are_free(
    free: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A set has two GPUs at least."""
    held = dict.fromkeys(gpus("n1", *range(8 - free)), "train")
    detail = inspection.node(cluster(node(held=held)), "n1", at())
    assert detail is not None
    print_node(detail, Form())
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_a_node_whose_gpus_are_claimed_shows_what_its_free_ones_are_worth() -> None:
    """As pods with ResourceClaims get them."""
    state = ClusterState()
    recognise(state, {OUR_CLASS: None})
    state.claims.slices.replaced([read_slice(resource_slice("n1", [gpu(0, gpus("n1", 0)[0])]))])
    state.claims.hear(True)
    detail = inspection.node(cluster(node(machine_name=PAIRS), into=state), "n1", at())
    assert detail is not None
    assert state.views["n1"].by_claim
    assert [best.gpus for best in detail.best_sets] == [2, 4, 8]


def test_nobody_knows_an_unknown_node_or_pod() -> None:
    """The answer is none, not an error."""
    assert inspection.node(cluster(), "n1", at()) is None
    assert inspection.explain(cluster(), "ml", "p1", at()) is None


def test_a_pod_is_shown_with_its_gpus_as_numbers() -> None:
    """In ring order, as its record has them."""
    a, b = gpus("n1", 3, 1)
    state = cluster(node(), running("p1", "n1", a, b))
    shown = inspection.pod_info(state, by_name(state, "p1"))
    assert (shown.node, shown.indexes, shown.containers) == ("n1", (3, 1), {"main": (a, b)})


def test_an_explanation_is_what_filter_and_prioritize_would_say() -> None:
    """The same nodes, the same favourite, the same refusals."""
    waiting = pod("p1", 4, wants=NVLINK)
    state = cluster(node("n1", PAIRS), node("n2", DGX), node("n3", DGX), waiting)
    told = inspection.explain(state, "ml", "p1", at())
    assert told is not None
    passed = filter_nodes(state, args(waiting, "n1", "n2", "n3"), at()).node_names
    best = max(prioritize_nodes(state, args(waiting, *passed), at()), key=lambda scored: scored.score)
    assert [fit.node for fit in told.fits] == passed
    assert told.fits[0].node == best.host
    assert [(refusal.nodes, refusal.example, refusal.reason) for refusal in told.refusals] == [(1, "n1", "affinity")]


def test_a_pod_that_contradicts_itself_is_told_so() -> None:
    """Its own annotation is the problem, not the nodes."""
    told = inspection.explain(cluster(node(), pod("p1", 4, wants={keys.REQUIRED_AFFINITY: "near"})), "ml", "p1", at())
    assert told is not None
    assert told.problem is not None
    assert keys.REQUIRED_AFFINITY in told.problem


def test_a_node_s_pods_are_listed_without_those_that_ended() -> None:
    """Nor is any other node's."""
    (a, b), (c,) = gpus("n1", 0, 1), gpus("n2", 0)
    ended = pod("p3", on="n1", placed=(b,), phase="Succeeded", terminated=True)
    state = cluster(node("n1"), node("n2"), running("p1", "n1", a), running("p2", "n2", c), ended, pod("p4", 1))
    assert [found.name for found in inspection.pods_on(state, "n1")] == ["p1"]


def test_holds_turn_no_yes_into_a_no_in_what_is_explained_either() -> None:
    """Another pod's hold is on two of the eight GPUs that are asked for: filter answers the node, so explain does."""
    asked = pod("p", 8)
    state = cluster(node(), asked)
    state.holds.put("other", Hold("n1", 0b11, expires=60.0))
    told = inspection.explain(state, "ml", "p", at())
    assert told is not None
    assert [fit.node for fit in told.fits] == list(filter_nodes(state, args(asked, "n1"), at()).node_names) == ["n1"]


def test_nothing_is_wrong_with_a_gpu_because_a_pod_has_it() -> None:
    """Its pod's record and the ledger agree."""
    [gpu] = gpus("n1", 0)
    state = cluster(node("n1", claims=(claim(gpu, "p1"),)), running("p1", "n1", gpu))
    [told] = inspection.nodes(state, ["n1"], at())
    assert (told.gpus[0].state, told.gpus[0].reasons) == ("claimed", ())
