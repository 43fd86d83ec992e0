"""Pods that ask for MIG slices: where they go, what is claimed for them, and what keeps slices and GPUs apart."""

from __future__ import annotations

import pytest

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.outcome import Bound
from extender.cluster.candidates.openness import MIG_CHANGES, MIG_STATE
from extender.cluster.objects.kinds import Pod
from extender.cluster.sickness import stricken_pods
from extender.cluster.state import ClusterState
from extender.inspect.drift import drift
from extender.inspect.faults import NO_REASON, SLICED
from extender.inspect.fragmentation import RoomCounter
from extender.inspect.inspection import node
from extender.inspect.status import status
from extender.kubectl.form import Form
from extender.kubectl.output import print_node
from extender.telemetry.gauges import gauges_of
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.dra import allocated, read_claim
from tests.extender.builders import args, at, claim, cluster, pod, running
from tests.extender.mig import cut, cut_node, slice_pod
from tests.extender.test_claimed_gpus import publish
from tests.extender.world import Replica, World
from topology.annotations import keys
from topology.annotations.codec import digest, encode_topology
from topology.annotations.records import Holder, Observed, decode_placement, encode_observed
from topology.annotations.status_codec import encode_status
from topology.effort import finish
from topology.node.status import DevicePluginStatus, GpuStatus, MigStrategy, Mode, NodeGpuStatus

SEVEN = ("1g.10gb",) * 7
TWO_CUT = {6: SEVEN, 7: SEVEN}


def passing(state: ClusterState, asked: Pod, *names: str) -> list[str]:
    return list(filter_nodes(state, args(asked, *names), at(), candidates=16).node_names)


def why_not(state: ClusterState, asked: Pod, name: str = "n1") -> str:
    answer = filter_nodes(state, args(asked, name), at(), candidates=16)
    return {**(answer.failed_nodes or {}), **(answer.failed_and_unresolvable_nodes or {})}[name]


def scores(state: ClusterState, asked: Pod, *names: str) -> dict[str, int]:
    return {entry.host: entry.score for entry in prioritize_nodes(state, args(asked, *names), at())}


def test_pod_goes_where_its_profile_is_and_to_the_fullest_gpu() -> None:
    """Three nodes: without slices, all free, and one slice in use."""
    taken = "MIG-used-7-0a"
    used = cut_node(cut("used", TWO_CUT), "used", claims=(claim(taken, "owner"),))
    state = cluster(cut_node(cut("whole", {}), "whole"), cut_node(cut("empty", TWO_CUT), "empty"), used)
    state.pods.changed(running("owner", "used", taken))
    asked = slice_pod("p", "1g.10gb")
    assert passing(state, asked, "whole", "empty", "used") == ["used", "empty"]
    assert scores(state, asked, "empty", "used") == {"used": 10, "empty": 1}
    assert why_not(cluster(cut_node(cut("n1", {}))), asked).startswith("node has no 1g.10gb slices (cut GPUs so")


def test_slices_and_whole_gpus_never_mix() -> None:
    """Six whole GPUs beside fourteen slices: seven GPUs are too many, and fifteen slices are."""
    state = cluster(cut_node(cut("n1", TWO_CUT)))
    assert passing(state, pod("gpus", 6), "n1")
    assert why_not(state, pod("gpus", 7)).startswith("fewer than 7 of the node's GPUs are whole: MIG is on")
    assert passing(state, slice_pod("slices", "1g.10gb", 14), "n1")
    assert why_not(state, slice_pod("slices", "1g.10gb", 15)).startswith("node has fewer than 15 1g.10gb slices")


def test_slices_that_are_held_claimed_sick_or_of_sick_gpus_are_not_free() -> None:
    """Fourteen slices: one claimed, one held by a stranger, one not offered, and those of a sick GPU."""
    topology = cut("n1", TWO_CUT)
    sick = (topology.gpus[7].uuid, "MIG-n1-6-2a")
    known = cut_node(topology, claims=(claim("MIG-n1-6-0a", "p1"),), held={"MIG-n1-6-1a": "stranger"}, sick=sick)
    state = cluster(known, running("p1", "n1", "MIG-n1-6-0a"))
    assert passing(state, slice_pod("p", "1g.10gb", 4), "n1")
    assert why_not(state, slice_pod("p", "1g.10gb", 5)).startswith("fewer than 5 1g.10gb slices are free")


def test_slices_stand_for_gpus_where_the_strategy_is_single() -> None:
    """A pod that asks for GPUs is not told that there are none, and a pod that asks for a profile is told why not."""
    every = cut_node(cut("n1", dict.fromkeys(range(8), SEVEN)), strategy=MigStrategy.SINGLE)
    state = cluster(every)
    assert passing(state, pod("p", 2), "n1")
    assert why_not(state, slice_pod("p", "1g.10gb")).startswith("the node's MIG slices are offered as GPUs")
    hidden = cluster(every, pod("stranger", 56, on="n1", phase="Running", terminated=False))
    assert why_not(hidden, pod("p", 1)).startswith("too few MIG slices are free: pods without")


def test_slices_that_no_plugin_offers_are_not_planned() -> None:
    """NVIDIA's plugin with the strategy none."""
    state = cluster(cut_node(cut("n1", TWO_CUT), strategy=MigStrategy.NONE))
    assert why_not(state, slice_pod("p", "1g.10gb")).startswith("the device plugin offers no MIG slices")
    assert passing(state, pod("gpus", 6), "n1")


def test_pod_that_came_around_us_hides_slices_of_its_profile_only() -> None:
    """It is bound, and nobody knows yet which slices it has."""
    layout = {6: SEVEN, 7: ("3g.40gb", "3g.40gb")}
    state = cluster(cut_node(cut("n1", layout)), slice_pod("stranger", "1g.10gb", 2, on="n1", phase="Running"))
    assert passing(state, slice_pod("p", "1g.10gb", 5), "n1")
    assert not passing(state, slice_pod("p", "1g.10gb", 6), "n1")
    assert passing(state, slice_pod("p", "3g.40gb", 2), "n1")
    assert passing(state, pod("gpus", 6), "n1")


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1}, {"nvidia.com/mig-1g.10gb": "x"}]
)
def test_request_that_cannot_be_met_as_one_is_refused(limits: dict[str, str | int]) -> None:
    """Several kinds of devices in one pod are not planned; nobody guesses."""
    asked = pod("p")
    asked.spec.containers[0].resources.limits.clear()  # type: ignore[union-attr]
    asked.spec.containers[0].resources.limits.update(limits)  # type: ignore[union-attr]
    state = cluster(cut_node(cut("n1", TWO_CUT)))
    assert filter_nodes(state, args(asked, "n1"), at(), candidates=16).error or not passing(state, asked, "n1")


@pytest.mark.parametrize(
    ("state_label", "opens"), [("pending", False), ("rebooting", False), ("success", True), ("failed", True)]
)
def test_node_is_closed_while_its_slices_are_changed(state_label: str, *, opens: bool) -> None:
    """By the MIG manager's own label; the sentence says who, and what opens it."""
    known = cut_node(cut("n1", TWO_CUT), labels={MIG_STATE: state_label})
    view = cluster(known).views["n1"]
    assert view.shape.closed == (None if opens else MIG_CHANGES)


class Cut(World):
    """One node with slices, behind the API."""

    def publish(self, layout: dict[int, tuple[str, ...]], run: str, held: dict[str, Holder], number: int) -> None:
        text = encode_topology(cut("n1", layout, run))
        plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, mig=MigStrategy.MIXED)
        self.annotate_node(
            "n1",
            topology=text,
            digest=digest(text),
            status=encode_status(NodeGpuStatus(number, device_plugin=plugin)),
            observed=encode_observed(Observed(held, generation=number, node_version=str(self.store.resource_version))),
        )

    def ask(self, name: str, profile: str) -> None:
        limits = {keys.MIG_PREFIX + profile: "1"}
        spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        self.store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})

    def label(self, state: str) -> None:
        self.patch(NODES, "n1", {"metadata": {"labels": {MIG_STATE: state}}})


def test_reconfiguration_under_load_loses_nothing() -> None:
    """Slices get new UUIDs; claims on those that are gone stay until their pods are proven to have ended, and close the GPU."""
    world = Cut(machine_name="hgx-h100")
    world.publish({7: SEVEN}, "a", {}, 1)
    replica = Replica(world)
    for name in ("ends", "deleted"):
        world.ask(name, "1g.10gb")
        replica.catch_up()
        assert isinstance(replica.bind(name), Bound)
    assert world.claims().keys() == {"MIG-n1-7-0a", "MIG-n1-7-1a"}
    world.label("pending")
    world.ask("waits", "3g.40gb")
    replica.catch_up()
    assert not isinstance(replica.bind("waits"), Bound)
    world.set_status("ends", "Succeeded", "terminated")
    world.delete("deleted", grace_period_seconds=0)  # nobody says that its container has ended
    world.publish({7: ("3g.40gb", "3g.40gb")}, "b", {}, 2)
    world.label("success")
    replica.catch_up()
    assert "MIG-n1-7-1a" in world.claims()
    assert not isinstance(replica.bind("waits"), Bound)
    for number in range(3, 7):
        replica.reconcile(rounds=1)
        world.publish({7: ("3g.40gb", "3g.40gb")}, "b", {}, number)
    replica.reconcile()
    assert not world.claims()
    assert isinstance(replica.bind("waits"), Bound)
    assert world.placed("waits") == {"MIG-n1-7-0b"}
    assert world.claims().keys() == {"MIG-n1-7-0b"}


def test_placement_and_ledger_name_the_slice() -> None:
    """The ledger's key `gpu` is a MIG UUID; readers find the slice under that name in the topology."""
    world = Cut(machine_name="hgx-h100")
    world.publish({7: ("3g.40gb", "1g.10gb+me")}, "a", {}, 1)
    replica = Replica(world)
    world.ask("p", "1g.10gb.me")
    replica.catch_up()
    bound = replica.bind("p")
    assert isinstance(bound, Bound)
    annotations = (world.find("p") or {})["metadata"]["annotations"]
    assert decode_placement(annotations[keys.PLACEMENT]).containers == {"main": ("MIG-n1-7-1a",)}
    assert list(world.claims()) == ["MIG-n1-7-1a"]


def test_slices_are_shown_below_their_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Who has which slice, why one cannot be had, and that the GPUs are cut up."""
    topology = cut("n1", {6: ("3g.40gb", "1g.10gb"), 7: ("3g.40gb",)})
    known = cut_node(
        topology, claims=(claim("MIG-n1-6-0a", "p1"),), held={"MIG-n1-6-1a": "stranger"}, sick=(topology.gpus[7].uuid,)
    )
    state = cluster(known, running("p1", "n1", "MIG-n1-6-0a"))
    shown = node(state, "n1", at())
    assert shown is not None
    said = [(each.gpu, each.profile, each.state, each.pod, each.reasons) for each in shown.slices]
    assert said == [
        (6, "3g.40gb", "claimed", "ml/p1", ()),
        (6, "1g.10gb", "unplanned", "ml/stranger", ("held by a pod of which the ledger does not know yet",)),
        (7, "3g.40gb", "unusable", None, (f"GPU 7: {NO_REASON}",)),
    ]
    assert [gpu.reasons for gpu in shown.gpus[5:]] == [(), (SLICED,), (NO_REASON, SLICED)]
    assert shown.free == 6
    print_node(shown, Form())
    assert "6     3g.40gb   claimed     ml/p1         main" in capsys.readouterr().out


def test_pod_on_a_sick_gpus_slice_is_told_so() -> None:
    """The GPU falls sick, and each pod on one of its slices holds a sick device."""
    topology = cut("n1", {7: SEVEN})
    gpu = GpuStatus(topology.gpus[7].uuid, healthy=False, reasons=("xid 79",), sick_since=7)
    status = NodeGpuStatus(1, (gpu,), device_plugin=DevicePluginStatus(Mode.ENFORCE, ready=True, mig=MigStrategy.MIXED))
    known = cut_node(topology, claims=(claim("MIG-n1-7-0a", "p1"),))
    known.metadata.annotations[keys.STATUS] = encode_status(status)  # type: ignore[index]
    state = cluster(known, running("p1", "n1", "MIG-n1-7-0a"))
    (stricken,) = stricken_pods(state)
    assert [(sick.uuid, sick.index, sick.reason) for sick in stricken.gpus] == [("MIG-n1-7-0a", 7, "xid 79")]
    shown = node(state, "n1", at())
    assert shown is not None
    assert shown.slices[1].reasons == ("GPU 7: xid 79",)


def test_whole_gpus_are_counted_without_slices() -> None:
    """Sums for people and metrics are about GPUs: six of eight, and no slice is one of them."""
    topology = cut("n1", TWO_CUT)
    state = cluster(cut_node(topology, claims=(claim("MIG-n1-6-0a", "p1"),)), running("p1", "n1", "MIG-n1-6-0a"))
    gauges = gauges_of(state)
    assert (gauges["gpus"], gauges["gpus_free"]) == (8, 6)
    assert (status(state).gpus, status(state).free) == (8, 6)
    fits = finish(RoomCounter().count(state))
    assert {size: fit.now for size, fit in fits.items()} == {1: 6, 2: 3, 4: 1, 8: 0}
    assert drift(state).differences == ()


def test_slices_of_a_gpu_that_a_resource_claim_holds_are_not_free() -> None:
    """Or of which it holds a slice: the driver names the GPU that it is cut out of."""
    topology = cut("n1", TWO_CUT)
    state = cluster(cut_node(topology))
    publish(state, [gpu.uuid for gpu in topology.gpus])
    state.claims.changed(read_claim(allocated("job", "n1", "gpu-7")))
    assert passing(state, slice_pod("p", "1g.10gb", 7), "n1")
    assert not passing(state, slice_pod("p", "1g.10gb", 8), "n1")
    shown = node(state, "n1", at())
    assert shown is not None
    assert {each.gpu: each.state for each in shown.slices} == {6: "free", 7: "unplanned"}
