"""GPUs that are cut, made whole or cut anew while pods live whose processes sleep: nobody else gets their silicon."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as struct_replace

from benchmarks.simulated.double.resources import NODES
from extender.binding.correction import correct
from extender.binding.outcome import Bound
from extender.binding.repair import repair
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.inspect.inspection import node as inspected
from extender.verbs.filter_prioritize import filter_nodes
from tests.dra import allocated, read_claim
from tests.extender.builders import args, at, claim, cluster, gpus, pod, running
from tests.extender.mig import cut, cut_node, slice_pod
from tests.extender.shares import share, sharer, sharing, sharing_node
from tests.extender.test_claimed_gpus import publish
from tests.extender.test_mig import Cut
from tests.extender.verbs.pairs import victims
from tests.extender.world import Replica, drive
from topology.annotations import keys
from topology.annotations.records import Claim, decode_ledger, encode_ledger
from topology.node.status import MigStrategy, Mode
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest

SEVEN = ("1g.10gb",) * 7
GPUS = tuple(gpu.uuid for gpu in cut("n1", {}).gpus)
SLICE = "MIG-n1-7-0a"
OTHERS = tuple(claim(gpu, f"o{index}") for index, gpu in enumerate(GPUS[:7]))


def slice_claim(uid: str = "owner", device: str = SLICE) -> Claim:
    return replace(claim(device, uid), parent=GPUS[7])


def free(state: ClusterState) -> set[str]:
    view = state.views["n1"]
    assert view.shape.closed is None
    return {uuid for position, uuid in enumerate(view.devices) if view.shape.free >> position & 1}


def passes(node: Node, asked: Pod, *live: Pod) -> bool:
    return bool(filter_nodes(cluster(node, *live), args(asked, "n1"), at(), candidates=16).node_names)


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("strategy", [MigStrategy.MIXED, MigStrategy.SINGLE])
def test_slices_of_a_gpu_that_a_pod_has_whole_are_not_free(strategy: MigStrategy, *, is_seen: bool) -> None:
    """Its neighbours' are."""
    layout = dict.fromkeys(range(8) if strategy is MigStrategy.SINGLE else (6, 7), SEVEN)
    held = {GPUS[7]: "owner"} if is_seen else {}
    node = cut_node(cut("n1", layout), claims=(claim(GPUS[7], "owner"),), held=held, strategy=strategy)
    asked = 49 if strategy is MigStrategy.SINGLE else 7
    one, more = (
        pod("p", count) if strategy is MigStrategy.SINGLE else slice_pod("p", "1g.10gb", count)
        for count in (asked, asked + 1)
    )
    owner = running("owner", "n1", GPUS[7])
    assert passes(node, one, owner)
    assert not passes(node, more, owner)


@pytest.mark.parametrize("held", [{SLICE: "owner"}, {}])
def test_gpu_is_not_free_while_a_pod_has_a_slice_of_it_that_is_gone(held: dict[str, str]) -> None:
    """Whether or not the agent still lists the slice; the claim remembers the GPU."""
    node = cut_node(cut("n1", {}), claims=(slice_claim(), *OTHERS[:6]), held=held)
    assert free(cluster(node, running("owner", "n1", SLICE))) == {GPUS[6]}


def test_slices_cut_anew_are_not_free_while_a_pod_has_one_of_the_earlier_cut() -> None:
    """None of that GPU's, all of another one's."""
    node = cut_node(cut("n1", {6: SEVEN, 7: SEVEN}, run="b"), claims=(slice_claim(), *OTHERS[:6]))
    assert free(cluster(node, running("owner", "n1", SLICE))) == {f"MIG-n1-6-{number}b" for number in range(7)}


@pytest.mark.parametrize("layout", [{}, {7: SEVEN}])
def test_slice_of_which_nobody_knows_the_gpu_closes_all(layout: dict[int, tuple[str, ...]]) -> None:
    """By a claim of an older extender, by a record, by the agent: it may be of any GPU."""
    topology = cut("n1", layout, run="b")
    owner = running("owner", "n1", SLICE)
    for claims, live, held in (
        ((claim(SLICE, "owner"),), (owner,), {}),
        ((), (owner,), {}),
        ((), (), {SLICE: "stranger"}),
    ):
        assert not free(cluster(cut_node(topology, claims=claims, held=held), *live))


def test_gone_slice_of_another_machine_closes_nothing() -> None:
    """The node came back with other GPUs and its old ledger."""
    strange = replace(slice_claim(), parent="GPU-of-the-former-machine")
    assert free(cluster(cut_node(cut("n1", {}), claims=(strange,)))) == set(GPUS)


def test_siblings_of_one_cut_share_a_gpu() -> None:
    """As ever: six of seven are free."""
    node = cut_node(cut("n1", {7: SEVEN}), claims=(slice_claim(), *OTHERS))
    assert free(cluster(node, running("owner", "n1", SLICE))) == {f"MIG-n1-7-{number}a" for number in range(1, 7)}


def test_nothing_is_planned_of_what_a_plugin_that_knows_no_silicon_may_take() -> None:
    """NVIDIA's plugin has GPU 7, or its slices, for free, and may give them to whoever comes for one of that kind."""
    owner, observe = running("owner", "n1", SLICE), Mode.OBSERVE
    whole = cut_node(cut("n1", {6: SEVEN}, run="b"), claims=(slice_claim(),), mode=observe)
    assert not passes(whole, pod("p", 1), owner)
    assert passes(whole, slice_pod("p", "1g.10gb", 7), owner)
    sliced = cut_node(
        cut("n1", {6: (*SEVEN[1:],), 7: ("3g.40gb", *SEVEN[4:])}, run="b"), claims=(slice_claim(),), mode=observe
    )
    assert not passes(sliced, slice_pod("p", "1g.10gb", 1), owner)
    assert passes(sliced, pod("p", 1), owner)
    important = [replace_priority(running(f"o{index}", "n1", gpu), 2000) for index, gpu in enumerate(GPUS[:6])]
    less = replace_priority(owner, 5)
    full = cut_node(cut("n1", {}), claims=(slice_claim(), *OTHERS[:6]), mode=observe)
    assert victims(cluster(full, less, *important, budgets=[]), pod("vip", 1, priority=1000)) == ["owner"]


def test_pod_does_not_keep_its_claim_on_silicon_that_another_has() -> None:
    """It was claimed, and then the GPU was made whole with the other one's slice gone; neither a GPU nor a share."""
    claims = (claim(GPUS[7], "p"), slice_claim(), *OTHERS[:6])
    for owner in ([], [running("owner", "n1", SLICE)]):
        state = cluster(cut_node(cut("n1", {}), claims=claims), pod("p"), *owner)
        found = state.views["n1"].decide_for("p", GpuRequest(1))
        assert isinstance(found, Placement) and found.gpus == (6,)
    gpu, *others = gpus("n1", *range(8))
    gone, mine = replace(claim(SLICE, "owner"), parent=gpu), share(gpu, "p", 5)
    node = sharing_node(gone, mine, share(gpu, "q", 5), *(claim(each, f"o{at}") for at, each in enumerate(others)))
    shared = cluster(node, sharer("p", 5), running("owner", "n1", SLICE), sharing("q", gpu, 5))
    request = GpuRequest(0, memory_gib=(5,))
    assert isinstance(shared.views["n1"].decide_for("p", request), Rejection)


def test_two_pods_on_the_silicon_of_one_gpu_are_a_conflict() -> None:
    """The GPU and a slice, and slices of two cuts; each device that is published is shown so."""
    now, earlier = "MIG-n1-7-0b", SLICE
    pods = running("whole", "n1", GPUS[7]), running("old", "n1", earlier), running("new", "n1", now)
    claims = claim(GPUS[7], "whole"), slice_claim("old"), slice_claim("new", now)
    state = cluster(cut_node(cut("n1", {7: SEVEN}, run="b"), claims=claims), *pods)
    conflicts = {gpu: [each.uid for each in of] for gpu, of in state.views["n1"].conflicts.items()}
    assert conflicts == {key: ["new", "old", "whole"] for key in (GPUS[7], earlier, now)}
    shown = inspected(state, "n1", at())
    assert shown is not None
    assert [each.state for each in shown.slices] == ["conflict", *["unusable"] * 6]
    assert shown.gpus[7].state == "conflict"


def test_people_are_told_who_has_the_silicon() -> None:
    """Of each slice and GPU that cannot be had, and that they are no fewer GPUs otherwise."""
    claims = (slice_claim("old"), claim(GPUS[6], "whole"))
    pods = running("old", "n1", SLICE), running("whole", "n1", GPUS[6])
    shown = inspected(cluster(cut_node(cut("n1", {6: ("3g.40gb",)}), claims=claims), *pods), "n1", at())
    assert shown is not None
    assert [each.reasons for each in shown.slices] == [("ml/whole has the whole GPU",)]
    assert shown.gpus[7].reasons == ("ml/old still has a MIG slice of an earlier cut",)
    assert (shown.gpus[7].state, shown.gpus[7].pod, shown.free) == ("unusable", None, 6)


def test_pods_on_slices_of_one_cut_are_no_conflict() -> None:
    """While it stands, and after it is gone; nor is one pod on several."""
    pods = running("p", "n1", SLICE, "MIG-n1-7-2a"), running("q", "n1", "MIG-n1-7-1a")
    claims = slice_claim("p"), slice_claim("q", "MIG-n1-7-1a"), slice_claim("p", "MIG-n1-7-2a")
    for layout in ({7: SEVEN}, {}):
        assert not cluster(cut_node(cut("n1", layout), claims=claims), *pods).views["n1"].conflicts


def test_pod_that_waits_for_silicon_that_another_was_seen_with_is_no_conflict() -> None:
    """Its node refuses it, and it will get another GPU."""
    waits = pod("waits", 1, on="n1", placed=(GPUS[7],), phase="Pending")
    node = cut_node(cut("n1", {7: SEVEN}), claims=(claim(GPUS[7], "waits"), slice_claim()), held={SLICE: "owner"})
    state = cluster(node, waits)
    state.pods.changed(pod("owner"))
    state.pods.changed(running("owner", "n1", SLICE, version=2))
    assert not state.views["n1"].conflicts
    state.pods.changed(running("waits", "n1", GPUS[7], version=2))
    assert state.views["n1"].conflicts


def test_who_has_a_slice_that_is_gone_is_the_victim_of_a_pod_that_wants_the_gpu() -> None:
    """And the pods on other GPUs are spared, however little they count."""
    owner = replace_priority(running("owner", "n1", SLICE), 5)
    pods = [replace_priority(running(f"o{index}", "n1", gpu), 6) for index, gpu in enumerate(GPUS[:7])]
    state = cluster(cut_node(cut("n1", {}), claims=(slice_claim(), *OTHERS)), owner, *pods, budgets=[])
    assert victims(state, pod("vip", 1, priority=1000), "o0") == ["owner"]
    assert victims(state, pod("vip", 1, priority=1000), "owner") == ["owner"]


def test_evicting_one_of_two_pods_on_slices_that_are_gone_frees_no_gpu() -> None:
    """Both have to go."""
    claims = slice_claim("p"), slice_claim("q", "MIG-n1-7-1a"), *OTHERS
    important = [replace_priority(running(f"o{index}", "n1", gpu), 2000) for index, gpu in enumerate(GPUS[:7])]
    pods = running("p", "n1", SLICE), running("q", "n1", "MIG-n1-7-1a")
    state = cluster(cut_node(cut("n1", {}), claims=claims), *pods, *important)
    assert sorted(victims(state, pod("vip", 1, priority=1000), "p") or ()) == ["p", "q"]


def replace_priority(found: Pod, priority: int) -> Pod:
    """Return the same pod with another priority."""
    return struct_replace(found, spec=struct_replace(found.spec, priority=priority))


def test_claim_on_a_slice_names_its_gpu() -> None:
    """Written by bind, and added to one of an earlier extender with the next write; a GPU's names none."""
    world = Cut(machine_name="hgx-h100")
    world.publish({7: SEVEN}, "a", {}, 1)
    replica = Replica(world)
    world.ask("p", "1g.10gb")
    world.add_pod("q", 1)
    replica.catch_up()
    assert isinstance(replica.bind("p"), Bound)
    strip_parents(world)
    replica.catch_up()
    assert isinstance(replica.bind("q"), Bound)
    assert {each.name: each.parent for each in ledger(world)} == {"p": GPUS[7], "q": ""}


def strip_parents(world: Cut) -> None:
    """Let an earlier extender rewrite the ledger, which passes over what it does not know."""
    text = world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER]
    before = decode_ledger(text)
    claims = tuple(replace(each, parent="") for each in before.claims)
    world.annotate_node("n1", ledger=encode_ledger(replace(before, generation=before.generation + 1, claims=claims)))


def ledger(world: Cut) -> tuple[Claim, ...]:
    return decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER]).claims


def test_ledger_that_is_rebuilt_after_a_cut_claims_slices_that_are_gone() -> None:
    """When the pod is deleted by force, nothing else remembers its silicon."""
    world = Cut(machine_name="hgx-h100")
    world.publish({7: SEVEN}, "a", {}, 1)
    replica = Replica(world)
    world.ask("p", "1g.10gb")
    replica.catch_up()
    assert isinstance(replica.bind("p"), Bound)
    world.set_status("p", "Running", "running")
    world.publish({}, "b", {}, 2)
    world.annotate_node("n1", ledger=None)
    replica.catch_up()
    drive(repair(replica.state, "n1"), world.execute)
    assert [(each.gpu, each.parent) for each in ledger(world)] == [(SLICE, GPUS[7])]
    world.delete("p", grace_period_seconds=0)
    world.add_pod("q", 8)
    world.add_pod("r", 7)
    replica.catch_up()
    assert not isinstance(replica.bind("q"), Bound)
    assert isinstance(replica.bind("r"), Bound)
    assert GPUS[7] not in world.placed("r")


def test_record_of_a_pod_is_enough_for_a_claim_on_a_slice_that_is_gone() -> None:
    """An extender that starts after both, the cut and the loss of the ledger; not for a slice of another machine."""
    node = cut_node(cut("n1", {}), claims=None)
    (missing,) = cluster(node, running("owner", "n1", SLICE)).views["n1"].unledgered
    assert (missing.gpu, missing.uid) == (SLICE, "owner")
    strange = cluster(cut_node(cut("n1", {})), running("owner", "n1", "GPU-of-the-former-machine")).views["n1"]
    assert not strange.unledgered


def test_unbound_pod_gives_way_to_whom_the_agent_saw_with_its_silicon() -> None:
    """Its GPU was cut before its Binding came; a stranger has a slice of it, another one of a GPU that nobody is promised."""
    topology = cut("n1", {6: SEVEN, 7: SEVEN})
    claims = (claim(GPUS[7], "waits"), claim(GPUS[5], "other"))
    held = {SLICE: "stranger"}
    stranger = slice_pod("stranger", "1g.10gb", on="n1", phase="Running")
    state = cluster(cut_node(topology, claims=claims, held=held), pod("waits"), pod("other"), stranger)
    correction = correct(state.views["n1"])
    assert [each.pod.uid for each in correction.holdings] == ["stranger"]
    assert correction.displaced == {"waits"}


def test_a_resource_claim_disputes_a_slice_that_is_gone() -> None:
    """DRA holds the GPU, and a pod of ours has silicon of it."""
    state = cluster(cut_node(cut("n1", {}), claims=(slice_claim(),)), running("owner", "n1", SLICE))
    publish(state, list(GPUS))
    state.claims.changed(read_claim(allocated("job", "n1", "gpu-7")))
    assert state.views["n1"].disputed == {GPUS[7]}


@pytest.mark.parametrize(("importance", "expected"), [(2000, None), (0, ["owner", "q"])])
def test_share_of_a_gpu_takes_the_end_of_a_pod_with_a_slice_of_it_that_is_gone(
    importance: int, expected: list[str] | None
) -> None:
    """To evict the pod with a share is not enough, and it stays where the other one does."""
    gpu, *others = gpus("n1", *range(8))
    gone = replace(claim(SLICE, "owner"), parent=gpu)
    owner = replace_priority(running("owner", "n1", SLICE), importance)
    claims = (claim(each, f"o{at}") for at, each in enumerate(others))
    node = sharing_node(gone, share(gpu, "q", 30), share(gpu, "stays", 5), *claims)
    important = [replace_priority(running(f"o{at}", "n1", each), 2000) for at, each in enumerate(others)]
    stays = replace_priority(sharing("stays", gpu, 5), 2000)
    state = cluster(node, owner, sharing("q", gpu, 30), stays, *important, budgets=[])
    found = victims(state, sharer("vip", 20, priority=1000), "q")
    assert (sorted(found) if found else None) == expected
