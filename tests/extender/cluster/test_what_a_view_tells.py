"""What a view tells others of its node: whose GPUs are, which of them two planners give away, and whether the ledger is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.cluster.candidates.holds import Held
from extender.cluster.masks import doubtful_devices, unfit_devices
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import read_request
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.node_devices import NodeDevices
from tests.extender.builders import claim, cluster, free, gpus, node, pod, running
from tests.extender.mig import cut, cut_node
from tests.extender.shares import SHARE_GIB, saw, share, sharer, sharing_node
from topology.annotations.codec import encode_topology
from topology.annotations.records import Ledger, encode_ledger, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.alignment import Policy, TopologyManager
from topology.node.status import DevicePluginStatus, GpuStatus, MigStrategy, Mode, NodeGpuStatus
from topology.placement.claims_left import LEDGER_FULL, ClaimsLeft
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest

A, B, *REST = gpus("n1", *range(8))
STRAY = "GPU-of-nobody"


def view(*objects: Node | Pod) -> NodeView:
    """Return the node as it is seen with these pods."""
    return cluster(*objects).views["n1"]


@pytest.mark.parametrize(
    ("changed", "is_known"),
    [
        (node(claims=(claim(A, "p"),), version=2, generation=2), True),
        (node(claims=(), version=2, generation=1), False),
        (node(claims=None, version=2), False),
        (node(ledger="{", version=2), False),
        (node(ledger='{"v":7,"claims":[]}', version=2), False),
    ],
    ids=["as we write it", "edited", "wiped", "unreadable", "of a later version"],
)
def test_a_ledger_is_known_if_it_can_be_read_and_nobody_else_has_changed_it(changed: Node, *, is_known: bool) -> None:
    """Only then may it be written."""
    state = cluster(node(claims=(claim(A, "p"),)))
    state.nodes.changed(changed)
    assert state.views["n1"].is_ledger_known is is_known


def test_no_claim_is_made_for_a_gpu_that_the_node_does_not_have() -> None:
    """Whatever a record says."""
    assert [made.gpu for made in view(node(), running("p", "n1", A, STRAY)).unledgered] == [A]


def test_every_owner_keeps_his_gpus_by_whatever_says_so() -> None:
    """By UID, or by name where only the agent knows of one: of a shared GPU all of them. Other nodes' GPUs count nothing."""
    seen = view(
        sharing_node(claim(REST[0], "claims"), claim(STRAY, "claims"), seen={A: {"x": 1, "y": 2}}, whole={B: "z"}),
        running("runs", "n1", REST[1], STRAY),
    )
    strangers = {("ml", "x"): 0b1, ("ml", "y"): 0b1, ("ml", "z"): 0b10}
    assert seen.taken() == {"claims": 0b100, "runs": 0b1000} | strangers


@pytest.mark.parametrize(
    ("mode", "is_sick", "kept"),
    [(Mode.OBSERVE, False, 0b1111_1111), (Mode.OBSERVE, True, 0b10), (Mode.ENFORCE, False, 0b10)],
    ids=["it may choose that GPU", "that GPU is sick", "we choose"],
)
def test_a_pod_with_a_slice_of_an_earlier_cut_keeps_all_that_another_plugin_may_choose_from(
    mode: Mode, kept: int, *, is_sick: bool
) -> None:
    """NVIDIA's plugin takes the slice's GPU for free, and may give it to any pod. The other pod keeps its own GPU alone."""
    whole = cut("n1", {})
    _, second, third, *_ = (gpu.uuid for gpu in whole.gpus)
    claims = replace(claim("MIG-gone", "owner"), parent=second), claim(third, "other")
    seen = view(cut_node(whole, mode=mode, claims=claims, sick=(second,) if is_sick else ()))
    assert seen.taken() == {"owner": kept, "other": 0b100}
    assert seen.taken_across() == {"owner": 0b10}


def test_another_plugin_leaves_alone_what_it_has_given_away_itself() -> None:
    """It takes the GPU of an earlier slice for free, and may give any; not where a pod is promised that GPU as a whole."""
    whole = cut("n1", {})
    gone = replace(claim("MIG-gone", "owner"), parent=whole.gpus[1].uuid)
    for claims, expected in (((gone,), 0), ((gone, claim(whole.gpus[1].uuid, "other")), 0b1111_1101)):
        assert view(cut_node(whole, mode=Mode.OBSERVE, claims=claims)).shape.free == expected


def test_what_a_claim_for_dra_holds_as_well_is_disputed() -> None:
    """A pod is promised it or was seen with it; a dead claim promises nothing."""
    claims = claim(A, "p"), claim(B, "elsewhere")
    seen = view(node(claims=claims, held={REST[0]: "stranger"}), pod("elsewhere", on="n2"))
    assert seen.disputed == frozenset()
    held = replace(seen, dra=NodeDevices(dict.fromkeys((A, B, REST[0], REST[2]), ("ml/job",))))
    assert held.left_to_dra == {A, B, REST[0], REST[2]}
    assert held.disputed == {A, REST[0]}


def test_of_a_node_without_a_topology_nothing_is_told() -> None:
    """Neither what DRA holds of it, nor which NICs are near, nor which GPUs are to be had, whatever is claimed."""
    bare = node(topology=None, claims=(share(A, "p", 1), share(A, "q", 1)))
    seen = replace(view(bare), dra=NodeDevices({A: ("ml/job",)}))
    assert (seen.left_to_dra, seen.nics_near([A])) == (frozenset(), ())
    assert (seen.conflicts, seen.usable, seen.fit, seen.doubtful) == ({}, 0, 0, 0)
    assert (doubtful_devices(seen.payloads), unfit_devices(seen.payloads)) == (0, 0)


def test_a_node_is_new_while_nothing_says_that_it_had_a_ledger() -> None:
    """A pod that was placed there says so: the ledger is lost, also where no GPUs are published."""
    placed = running("p", "n1", A)
    with_topology, without = node(claims=None), node(claims=None, topology=None)
    for objects, is_new, is_broken in (
        ([node()], False, False),
        ([with_topology], True, True),
        ([with_topology, placed], False, True),
        ([without], True, False),
        ([without, placed], False, True),
    ):
        seen = view(*objects)
        assert (seen.is_new, seen.is_broken) == (is_new, is_broken)


def test_a_share_is_decided_on_exactly_what_is_held_for_it() -> None:
    """If that has room, beside what is held for others."""
    seen = view(sharing_node(share(A, "q", 30)))
    request = read_request(sharer("p", 10)).request
    assert isinstance(seen.decide_on(Held(0, ((0, 10, ""),)), request), Rejection)
    verdict = seen.decide_on(Held(0, ((2, 10, ""),)), request)
    assert isinstance(verdict, Placement) and verdict.gpus == (2,), "though the first one is shared already"
    two, apart = read_request(sharer("p", {"a": 10, "b": 5})).request, Held(0, ((2, 5, ""), (3, 10, "")))
    verdict = seen.decide_on(apart, two)
    assert isinstance(verdict, Placement) and verdict.shares == (3, 2)
    assert isinstance(seen.decide_on(apart, two, Held(0, ((3, 30, ""),))), Rejection)


def test_no_gpus_are_decided_on_for_which_the_ledger_has_no_room() -> None:
    """The claims of a pod that comes are all new."""
    seen = view(node())
    seen = replace(seen, shape=replace(seen.shape, claims_left=ClaimsLeft(whole=1)))
    assert isinstance(seen.decide_on(Held(0b11), GpuRequest(1)), Placement)
    assert seen.decide_on(Held(0b11), GpuRequest(2)) == LEDGER_FULL


def test_the_first_who_still_holds_a_gpu_is_its_holder() -> None:
    """And only those have shares of it who still do."""
    gone = [sharer(name, 1, on="n1", gpu=A, phase="Succeeded", terminated=True) for name in ("a", "c")]
    seen = view(sharing_node(seen={A: {"a": 1, "b": 2, "c": 3, "d": 4}}), *gone)
    assert seen.holders[A].name == "b"
    assert [who.name for who in seen.sharers[A]] == ["b", "d"]


def test_what_another_plugin_shares_is_held_by_the_first_of_its_sharers() -> None:
    """There are no shares of ours on such a node."""
    status = encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(Mode.OBSERVE, ready=True)))
    seen = view(node(status=status, observed=encode_observed(saw({A: {"x": 1, "y": 1}}))))
    assert (seen.sharers, seen.uses, seen.holders[A].name) == ({}, {}, "x")
    assert free(cluster(seen.node)) == (1, 2, 3, 4, 5, 6, 7)


def test_a_pod_that_was_called_ended_is_asked_about_while_it_has_claims() -> None:
    """Its containers may run; without claims it counts only where there is no ledger to say so."""
    ended = pod("p", on="n1", placed=(A,), phase="Failed")
    for claims, counts in ((claim(A, "p"),), True), ((), False), (None, True):
        assert bool(view(node(claims=claims), ended).holdings) is counts
    state = cluster(node(claims=()), ended)
    state.nodes.changed(node(ledger="{", version=2))
    assert state.views["n1"].holdings


def test_which_gpus_the_kubelet_may_take_for_free_is_known_where_it_aligns() -> None:
    """Neither what pods stay with, nor what is shared, nor what is not offered; of the rest any that we know to be taken."""
    plugin = DevicePluginStatus(
        Mode.ENFORCE,
        ready=True,
        topology_manager=TopologyManager(Policy.RESTRICTED),
        also_offered=frozenset({REST[1]}),
    )
    sick = tuple(GpuStatus(gpu, healthy=False) for gpu in (REST[0], REST[1]))
    written = encode_status(NodeGpuStatus(1, sick, device_plugin=plugin))
    held = encode_observed(saw({}, {A: "stays", B: "goes"}))
    claims = share(REST[2], "p", SHARE_GIB), claim(REST[3], "claims")
    pods = (
        running("stays", "n1", A),
        pod("goes", on="n1", placed=(B,), phase="Running", terminated=False, deleting=True),
    )
    assert view(node(status=written, observed=held, claims=claims), *pods).shape.perhaps_free == 0b1110_1010
    plain = encode_status(NodeGpuStatus(1, sick, device_plugin=replace(plugin, topology_manager=None)))
    assert view(node(status=plain), *pods).shape.perhaps_free == 0


def test_slices_are_offered_in_no_way_where_nobody_offers_them() -> None:
    """The agent has found them, and says nothing of a device plugin."""
    sliced = cut("n1", {6: ("1g.10gb",) * 7})
    assert view(cut_node(sliced)).shape.mig is MigStrategy.MIXED
    for status in encode_status(NodeGpuStatus(1)), None:
        assert view(node(topology=encode_topology(sliced), status=status)).shape.mig is MigStrategy.NONE


@pytest.mark.parametrize("strategy", MigStrategy)
def test_nodes_without_slices_are_alike_however_slices_would_be_offered(strategy: MigStrategy) -> None:
    """As they are where nobody says how."""
    status = encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(Mode.ENFORCE, ready=True, mig=strategy)))
    assert view(node(status=status)).shape.mig is MigStrategy.NONE
    assert view(node()).shape.mig is MigStrategy.NONE


@pytest.mark.parametrize(
    ("built", "set_aside", "is_open"),
    [(node(), None, True), (node(ready=False), None, False), (node(), "it is tainted", False)],
    ids=["open", "not schedulable", "set aside"],
)
def test_a_node_is_open_when_it_is_schedulable_and_not_set_aside(
    built: Node, set_aside: str | None, *, is_open: bool
) -> None:
    """Both conditions are needed: what is free there counts as free only then."""
    assert replace(view(built), set_aside=set_aside).is_open is is_open


@pytest.mark.parametrize("mode", Mode)
def test_the_view_says_whether_another_plugin_chooses_the_gpus(mode: Mode) -> None:
    """NVIDIA's device plugin chooses them in mode observe alone."""
    status = encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(mode, ready=True)))
    assert view(node(status=status)).plugin_chooses is (mode is Mode.OBSERVE)


def recorded(*uuids: str, **annotations: str | None) -> Node:
    """Build a node whose ledger records these GPUs."""
    return node(ledger=encode_ledger(Ledger(1, (), "uid-n1", uuids)), **annotations)  # type: ignore[arg-type]


def test_a_node_owns_the_gpus_that_it_publishes_and_those_that_its_ledger_records() -> None:
    """By UUID; a GPU that another node may own is left out, and one with a claim stays."""
    seen = view(node(claims=(claim(STRAY, "p"),)))
    assert replace(seen, not_owned=frozenset({A})).owned_gpus == tuple(sorted((B, *REST, STRAY)))


@pytest.mark.parametrize(
    ("built", "owned"),
    [
        (recorded(A, B, topology=None), (A, B)),
        (node(claims=(claim(A, "p"),), topology=None), None),
        (node(claims=None, topology=None), None),
    ],
    ids=["recorded", "claimed, but not recorded", "no ledger"],
)
def test_without_a_topology_the_record_of_gpus_stays_as_it_is(built: Node, owned: tuple[str, ...] | None) -> None:
    """A topology that is missing for a moment neither adds a GPU nor takes one away."""
    assert view(built).owned_gpus == owned


@pytest.mark.parametrize(
    ("changed", "is_unrecorded"),
    [
        (node(), True),
        (recorded(A, B), True),
        (recorded(A, B, *REST), False),
        (node(digest="of something else"), False),
        (node(claims=None, topology=None), False),
    ],
    ids=["no record", "some recorded", "all recorded", "topology in doubt", "no GPUs"],
)
def test_a_ledger_is_to_record_the_gpus_when_it_records_others(changed: Node, *, is_unrecorded: bool) -> None:
    """Nothing is recorded while the topology is in doubt."""
    assert view(changed).is_unrecorded is is_unrecorded


def test_gpus_are_not_recorded_in_a_ledger_that_was_removed() -> None:
    """It is rebuilt first, and the rebuilt one records them."""
    state = cluster(node())
    assert state.views["n1"].is_unrecorded
    state.nodes.changed(node(claims=None, version=2))
    assert not state.views["n1"].is_unrecorded


OTHER = gpus("n2", 0)[0]


@pytest.mark.parametrize(
    ("objects", "is_amiss"),
    [
        ((node(claims=(claim(A, "p"),)), running("p", "n1", A)), False),
        ((node(claims=(claim(A, "p"),)), running("p", "n1", A), running("q", "n1", B)), True),
        ((node(claims=(claim(OTHER, "p"),)), running("p", "n1", OTHER)), True),
        ((node(claims=None),), True),
    ],
    ids=["all is well", "a pod without a claim", "GPUs of another node", "no ledger"],
)
def test_a_node_is_amiss_when_the_ledger_or_one_record_is_wrong(
    objects: tuple[Node | Pod, ...], *, is_amiss: bool
) -> None:
    """One pod is enough, whatever is known of the others."""
    assert view(*objects).is_amiss is is_amiss


def test_a_node_is_amiss_while_the_record_of_one_pod_names_another_gpu() -> None:
    """The ledger and a later report agree on the GPU that the pod has."""
    state = cluster(node(claims=(claim(A, "p"), claim(B, "q"))), running("p", "n1", A), running("q", "n1", B))
    amiss = [state.views["n1"].is_amiss]
    claims = claim(A, "p"), claim(REST[0], "q")
    state.nodes.changed(node(claims=claims, held={A: "p", REST[0]: "q"}, generation=2, version=2))
    amiss.append(state.views["n1"].is_amiss)
    state.pods.changed(running("q", "n1", REST[0], version=2))
    assert [*amiss, state.views["n1"].is_amiss] == [False, True, False]


@pytest.mark.parametrize(
    ("parent", "is_elsewhere"),
    [(0, False), (3, False), (None, True)],
    ids=["of the first GPU", "of another GPU", "of another machine's GPU"],
)
def test_a_slice_of_an_earlier_cut_is_a_device_of_the_node_whose_gpu_it_is_of(
    parent: int | None, *, is_elsewhere: bool
) -> None:
    """It is published no more; its claim says of which GPU it is."""
    whole = cut("n1", {})
    of = STRAY if parent is None else whole.gpus[parent].uuid
    claims = (replace(claim("MIG-gone", "p"), parent=of),)
    seen = view(cut_node(whole, claims=claims), running("p", "n1", "MIG-gone"))
    assert [held.is_elsewhere for held in seen.holdings] == [is_elsewhere]
    assert seen.has_devices(["MIG-gone", whole.gpus[0].uuid]) is not is_elsewhere


def test_no_pod_is_elsewhere_while_the_gpus_of_its_node_are_not_known() -> None:
    """Nobody can say that its GPUs are another node's."""
    [held] = view(node(topology=None, claims=(claim(A, "p"),)), running("p", "n1", A)).holdings
    assert not held.is_elsewhere
