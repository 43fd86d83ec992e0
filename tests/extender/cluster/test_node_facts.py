"""Single facts about a node: its conditions, its place, its ledger's past, GPUs that it does not list."""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.candidates.offers import Offers
from extender.cluster.candidates.openness import LEDGER_MISSING, NOT_READY
from extender.cluster.candidates.shape import Shape
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.masks import mask_of
from extender.cluster.objects.health_signs import HealthWords
from extender.cluster.objects.kinds import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from extender.cluster.objects.locations import locate
from extender.cluster.objects.payloads import NodePayloads, Payload, RestlessTopology
from extender.cluster.state import ClusterState
from extender.config.health_words import HealthWord, WordKind
from tests.extender.builders import DGX, claim, cluster, free, gpus, node, pod, running
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.status import GpuStatus
from topology.node.status import NodeGpuStatus as AgentStatus
from topology.request.domains import DOMAIN_LABELS, Level, Location

G = gpus("n1", *range(8))


def with_conditions(*conditions: NodeCondition, none: bool = False) -> Node:
    return msgspec.structs.replace(node(), status=NodeStatus(None, None if none else list(conditions)))


@pytest.mark.parametrize(
    ("found", "closed"),
    [
        (with_conditions(none=True), None),
        (with_conditions(), None),
        (with_conditions(NodeCondition("Ready", "True")), None),
        (with_conditions(NodeCondition("Ready", "False")), NOT_READY),
        (with_conditions(NodeCondition("Ready", "Unknown")), NOT_READY),
        (with_conditions(NodeCondition("DiskPressure", "True"), NodeCondition("Ready", "True")), None),
        (with_conditions(NodeCondition("DiskPressure", "False")), None),
    ],
)
def test_a_node_is_closed_by_its_ready_condition_alone(found: Node, closed: str | None) -> None:
    """A node that says nothing of itself is taken for well, as kube-scheduler does."""
    assert cluster(found).views["n1"].shape.closed == closed


@pytest.mark.parametrize(
    ("found", "is_new"), [(node(claims=None), True), (node(claims=(), version=1), False)], ids=["never", "once"]
)
def test_a_ledger_that_was_there_once_is_lost_and_not_new(found: Node, *, is_new: bool) -> None:
    """As far as has been heard."""
    state = cluster(found)
    state.nodes.changed(node(claims=None, version=2))
    view = state.views["n1"]
    assert (view.is_new, view.shape.closed, view.is_broken) == (is_new, LEDGER_MISSING, True)


def test_a_record_shows_that_there_was_a_ledger() -> None:
    """Nobody else writes such records."""
    assert not cluster(node(claims=None), running("p", "n1", G[0])).views["n1"].is_new
    assert cluster(node(claims=None), pod("p", on="n1")).views["n1"].is_new


def test_gpus_that_are_not_listed_are_one_bit_more() -> None:
    """So they never serve, however many they are."""
    assert mask_of(("a", "b"), ["b", "x", "y"]) == 0b110
    assert mask_of(("a", "b"), ["a", "b"]) == 0b11
    assert mask_of((), []) == 0


@pytest.mark.parametrize("position", [0, 3, 7])
def test_one_gpu_that_is_cut_or_sick_is_that_one(position: int) -> None:
    """Whichever it is."""
    for fault in (GpuStatus(G[position], mig_enabled=True), GpuStatus(G[position], healthy=False)):
        found = free(cluster(node(status=encode_status(AgentStatus(1, (fault,))))))
        assert found == tuple(other for other in range(8) if other != position)


@pytest.mark.parametrize(("cpu", "expected"), [("", None), ("9", 12_000), ("8", 8_000)])
def test_idle_cpu_is_part_of_the_shape(cpu: str, expected: int | None) -> None:
    """In steps; where the node does not say what it has, nobody knows."""
    assert cluster(node(cpu=cpu)).views["n1"].shape.cpu_milli == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, Location()),
        (None, Location()),
        ({"topology.kubernetes.io/rack": "r1"}, Location(rack="r1")),
        ({"topology.kubernetes.io/rack": "", "fabric.topograph.run/tier-0": "r2"}, Location(rack="r2")),
        ({"fabric.topograph.run/tier-0": "r2", "topology.kubernetes.io/rack": "r1"}, Location(rack="r1")),
        ({"nvidia.com/gpu.clique": "c.1", "topology.kubernetes.io/block": "b"}, Location("c.1", None, "b")),
    ],
)
def test_a_nodes_place_is_told_by_the_first_label_that_says_something(
    labels: dict[str, str] | None, expected: Location
) -> None:
    """Level by level."""
    found = msgspec.structs.replace(node(), metadata=msgspec.structs.replace(node().metadata, labels=labels))
    assert locate(found, NodePayloads(), DOMAIN_LABELS) == expected
    assert locate(found, NodePayloads(), {}) == Location()
    assert set(DOMAIN_LABELS) == set(Level)


def test_a_text_that_is_the_same_is_not_read_again() -> None:
    """What was made of it may be large."""
    payload = Payload("text", ["value"])
    assert payload.reread("text", lambda text: [text]) is payload
    assert payload.reread("other", lambda text: [text]) == Payload("other", ["other"])
    assert payload.reread(None, lambda text: [text]) == Payload()


def test_a_ledger_that_somebody_has_set_back_keeps_the_greater_generation() -> None:
    """And all claims of both, ours where both name a GPU."""
    state = cluster(node(claims=(claim(G[0], "ours"), claim(G[1], "ours")), generation=7))
    state.nodes.changed(node(claims=(claim(G[1], "theirs"), claim(G[2], "theirs")), generation=3, version=2))
    payload = state.views["n1"].payloads.ledger
    assert payload.value is not None and payload.problem is not None
    assert payload.value.generation == 7
    assert {each.gpu: each.uid for each in payload.value.claims} == {G[0]: "ours", G[1]: "ours", G[2]: "theirs"}
    assert str(payload.problem) == "does not grow @ $.generation"


def test_of_too_many_offers_those_to_pods_that_were_not_heard_of_for_longest_are_forgotten() -> None:
    """A pod that is offered something again is heard of."""
    shapes, offers = ShapeIndex(), Offers(limit=2)
    shapes.put("n1", Shape(None, 0b11))
    for uid in ("a", "b", "a", "c"):
        offers.add(uid, ["n1", "unknown"], shapes)
    assert [offers.refused(uid, shapes) for uid in "abc"] == [{"n1"}, set(), {"n1"}]
    shapes.put("n1", Shape(None, 0b01))
    assert offers.refused("a", shapes) == set()
    shapes.put("n1", None)
    assert offers.refused("a", shapes) == set()
    offers.forget("a")
    offers.forget("never heard of")
    assert offers.refused("a", shapes) == set()


def test_gpus_that_are_well_are_free_though_the_status_names_them() -> None:
    """A status tells of each GPU what it holds in memory, too."""
    status = AgentStatus(1, (GpuStatus(G[0], memory_used_gib=3), GpuStatus(G[1], mig_enabled=True), GpuStatus(G[2])))
    assert free(cluster(node(status=encode_status(status)))) == (0, 2, 3, 4, 5, 6, 7)


def test_a_word_of_another_health_agent_closes_a_node_only_if_configured() -> None:
    """The same node, read without and with the setting; it opens again with the condition."""
    sick = with_conditions(NodeCondition("Ready", "True"), NodeCondition("XIDErrors", "True", "R", "XID 79"))
    closing = HealthWords([HealthWord(WordKind.CONDITION, "XIDErrors", "True", closes=True)])
    assert cluster(sick).views["n1"].shape.closed is None
    state = ClusterState(health_words=closing)
    state.nodes.replaced([sick])
    state.pods.replaced([])
    assert state.views["n1"].shape.closed == "closed by condition XIDErrors=True"
    well = with_conditions(NodeCondition("Ready", "True"), NodeCondition("XIDErrors", "False"))
    state.nodes.changed(msgspec.structs.replace(well, metadata=node(version=2).metadata))
    assert state.views["n1"].shape.closed is None


def test_of_others_words_only_what_matters_is_kept() -> None:
    """Thousands of nodes have dozens of conditions and taints each, with messages."""
    chatter = [NodeCondition(f"C{number}", "False", "reason", "message " * 20) for number in range(40)]
    known = with_conditions(*chatter, NodeCondition("Ready", "True", "KubeletReady", "kubelet is posting"))
    mine = Taint("example.com/mine", "NoSchedule")
    tainted = msgspec.structs.replace(known, spec=NodeSpec([mine, Taint("example.com/soft", "PreferNoSchedule")]))
    kept = cluster(tainted).nodes.get("n1")
    assert kept is not None
    assert (kept.node.status.conditions, kept.node.spec.taints, kept.signs) == (
        [NodeCondition("Ready", "True")],
        [mine],
        (),
    )


def test_signs_outlive_a_topology_that_is_read_later() -> None:
    """A restless topology is read from what is kept, which has the signs and not the conditions any more."""
    sick = with_conditions(NodeCondition("Ready", "True"), NodeCondition("GPUMissing", "True"))
    restless = ClusterState()
    restless.nodes.replaced([sick])
    for version in range(2, 60):
        flip = encode_topology(machine(DGX if version % 2 else "t4-4", host="n1"))
        changed = msgspec.structs.replace(
            sick.metadata, resource_version=str(version), annotations={keys.TOPOLOGY: flip}
        )
        restless.nodes.changed(msgspec.structs.replace(sick, metadata=changed))
    known = restless.nodes.get("n1")
    assert known is not None and isinstance(known.payloads.topology.problem, RestlessTopology)
    for now in (0.0, 1e6, 2e6):
        for _ in restless.nodes.telling(now):
            pass
    read = restless.nodes.get("n1")
    assert read is not None and read.payloads.topology.problem is None
    assert [sign.name for sign in read.signs] == ["GPUMissing"]
