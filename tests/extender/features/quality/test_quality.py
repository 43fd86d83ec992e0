"""How good decisions are is told beside the calls: bandwidth over the best, what others lose, who waits, what fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.simulated.double.resources import PODS
from benchmarks.simulated.fleet import SimulatedNode
from extender.binding.outcome import BindTarget, Bound, Chosen
from extender.cluster.candidates.holds import Held
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.features.quality.feature import Quality, best_gb_per_s
from extender.features.quality.series import QUALITY
from extender.inspect.fragmentation import Room, RoomCounter, fragmentation
from extender.inspect.history import History
from extender.telemetry.metrics import Metrics
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.binds import ready
from tests.extender.builders import DGX, PAIRS, args, at, claim, cluster, finish, gpus, node, running
from tests.extender.polling import eventually
from tests.extender.serving import serving
from tests.extender.telemetry.test_metrics import families
from topology.formats.catalog import machine
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason
from topology.request.gpu_request import Communication, GpuRequest
from topology.value.score import Weights

TARGET = BindTarget("default", "p", "uid", "n1")
Series = dict[str, dict[tuple[str, ...], float]]


def told(state: ClusterState, *chosen: Chosen, seconds: float = 0.0, pods_to_come: float = 0.3) -> Series:
    """Return the series after one round."""
    metrics = Metrics("digest", QUALITY)
    quality = Quality(state, metrics, lambda: at(seconds), History(), pods_to_come=pods_to_come)
    for each in chosen:
        quality.judge_later(TARGET, each)
    finish(quality.round())
    return families(metrics)


def choice(free: int, request: GpuRequest, compiled: TopologyClass) -> Chosen:
    found = decide(Situation(compiled, free), request)
    assert isinstance(found, Placement)
    return Chosen(request, found, compiled)


def test_a_placement_is_compared_with_the_best_of_its_machine_when_empty() -> None:
    """A joined pair is as good as it gets; two GPUs of two pairs talk through the host."""
    compiled, pair = TopologyClass(machine(PAIRS)), GpuRequest.plain(2)
    best, poor = choice(0b11, pair, compiled), choice(0b101, pair, compiled)
    assert best.placement.bandwidth
    assert poor.placement.bandwidth
    found = told(cluster(), best, poor)
    ratio = poor.placement.bandwidth.point / best.placement.bandwidth.point
    assert ratio < 0.5
    assert found["gputopo_placement_bandwidth_ratio_count"]["heavy",] == 2
    assert found["gputopo_placement_bandwidth_ratio_sum"]["heavy",] == pytest.approx(1 + ratio)
    assert found["gputopo_placement_bandwidth_ratio_bucket"]["heavy", "0.5"] == 1


def test_how_much_a_pod_talks_is_told_and_one_gpu_talks_to_nobody() -> None:
    """So that nobody is alarmed by pods that do not care."""
    compiled = TopologyClass(machine(PAIRS))
    silent = choice(0b101, GpuRequest(2, communication=Communication.NONE), compiled)
    found = told(cluster(), silent, choice(0b1, GpuRequest.plain(1), compiled))
    counts = found["gputopo_placement_bandwidth_ratio_count"]
    assert counts == {("heavy",): 0, ("light",): 0, ("none",): 1}
    assert found["gputopo_placement_loss_count"] == {(): 2}


def test_the_best_is_never_beaten() -> None:
    """By no set of any size, on a machine whose sets differ."""
    compiled = TopologyClass(machine("dgx-1v"))
    for mask in range(1 << 8):
        if mask.bit_count() > 1:
            best = best_gb_per_s(compiled, mask.bit_count())
            assert best is not None
            assert compiled.predict(mask)[0].point <= best


def test_a_placement_waits_while_the_best_is_searched_for() -> None:
    """The search goes on beside calls; nothing is told before it has ended, and all of it after."""
    state = cluster()
    compiled = TopologyClass(machine("dgx-1v"), effort=state.effort)
    metrics = Metrics("digest", QUALITY)
    quality = Quality(state, metrics, at, History(), pods_to_come=0.3)
    known = choice(0b11, GpuRequest.plain(2), TopologyClass(compiled.node))
    quality.judge_later(TARGET, replace(known, topology_class=compiled))
    with state.effort.bounded(1):
        finish(quality.round())
    assert families(metrics)["gputopo_placement_bandwidth_ratio_count"]["heavy",] == 0
    for _ in state.effort.work():
        pass
    finish(quality.round())
    assert families(metrics)["gputopo_placement_bandwidth_ratio_count"]["heavy",] == 1
    assert families(metrics)["gputopo_placement_loss_count"] == {(): 1}


@pytest.mark.parametrize("is_scored", [True, False])
def test_bind_tells_the_loss_of_the_decision_that_chose_the_gpus(is_scored: bool) -> None:
    """Of all that was free then: of the GPUs that are held for the pod alone it would be another."""
    world, replica = ready("p", machine_name=PAIRS)
    known = replica.state.pods.get(world.store.get(PODS, "default", "p")["metadata"]["uid"])
    assert known
    view = replica.state.views["n1"]
    whole, held = view.shape.decide(GpuRequest.plain(2)), view.decide_on(Held(0b11), GpuRequest.plain(2))
    assert isinstance(whole, Placement)
    assert isinstance(held, Placement)
    assert held.value_lost != whole.value_lost
    if is_scored:
        filter_nodes(replica.state, args(known.pod, "n1"), replica.clock())
        prioritize_nodes(replica.state, args(known.pod, "n1"), replica.clock())
    outcome = replica.bind("p")
    assert isinstance(outcome, Bound)
    assert outcome.chosen
    assert outcome.chosen.placement.value_lost == whole.value_lost
    again = replica.bind("p")
    assert isinstance(again, Bound)
    assert again.chosen is None


def test_the_loss_is_weighed_as_the_score_weighs_it() -> None:
    """By λ."""
    chosen = choice(0xFF, GpuRequest.plain(2), TopologyClass(machine(PAIRS)))
    assert chosen.placement.value_lost
    found = told(cluster(), chosen, pods_to_come=0.7)
    assert found["gputopo_placement_loss_sum"] == {(): pytest.approx(0.7 * chosen.placement.value_lost)}


def test_pods_that_wait_are_told_by_reason_and_for_how_long() -> None:
    """The longest and the mean; what nobody waits for is 0."""
    state = cluster()
    state.memory.refusals.add("a", frozenset({Reason.AFFINITY}), 10.0)
    state.memory.refusals.add("b", frozenset({Reason.AFFINITY, Reason.NIC}), 70.0)
    waits = told(state, seconds=110.0)["gputopo_waiting_seconds"]
    assert (waits["longest", "affinity"], waits["mean", "affinity"], waits["mean", "nic"]) == (100.0, 70.0, 40.0)
    assert {reason for _, reason in waits} == set(Reason)
    assert {name: value for name, value in waits.items() if value} == {
        ("longest", "affinity"): 100.0,
        ("mean", "affinity"): 70.0,
        ("longest", "nic"): 40.0,
        ("mean", "nic"): 40.0,
    }


def broken() -> list[Node | Pod]:
    """Return two nodes of four pairs, one of which has lost one GPU of each pair to a pod."""
    taken = gpus("n1", 0, 2, 4, 6, machine_name=PAIRS)
    return [
        node("n1", PAIRS, claims=tuple(claim(gpu, "p") for gpu in taken)),
        running("p", "n1", *taken),
        node("n2", PAIRS),
    ]


def test_room_is_told_by_size_as_the_plugin_tells_it() -> None:
    """By links now, by count, and if all were free."""
    state = cluster(*broken())
    shown = told(state)["gputopo_fragmentation_pods"]
    assert (shown["2", "now"], shown["2", "by_count"], shown["2", "empty"]) == (4, 6, 8)
    sizes: tuple[Room, ...] = fragmentation(state).sizes
    assert shown == {
        (str(room.gpus), when): pods
        for room in sizes
        for when, pods in (("now", room.now), ("by_count", room.by_count), ("empty", room.empty))
    }


def test_nodes_that_are_alike_are_counted_once() -> None:
    """A round grows with the kinds of nodes, not with the nodes."""
    few, many = (cluster(*(node(f"n{i}", PAIRS, cpu=str(i)) for i in range(count))) for count in (2, 40))
    steps = [
        sum(1 for _ in Quality(state, Metrics("d", QUALITY), at, History(), pods_to_come=0.3).round())
        for state in (few, many)
    ]
    assert steps[0] == steps[1]


def test_what_was_counted_is_counted_anew_only_where_something_has_changed() -> None:
    """A kind of node that was there before costs a look-up, until what free GPUs are worth is another."""
    state = cluster(node("n1", PAIRS), node("n2", DGX))
    rooms = RoomCounter()
    first = finish(rooms.count(state))
    classes = [view.shape.topology_class for view in state.views.values() if view.shape.topology_class]
    spent = [each.meter.steps for each in classes]
    for each in classes:
        each.forget()
    assert finish(rooms.count(state)) == first
    assert [each.meter.steps for each in classes] == spent
    finish(classes[0].appraise(Weights()))
    spent = [each.meter.steps for each in classes]
    finish(rooms.count(state))
    assert [each.meter.steps > before for each, before in zip(classes, spent, strict=True)] == [True, False]


def test_sizes_that_no_machine_has_any_more_are_gone() -> None:
    """And not shown as they were last."""
    state = cluster(node("n1", PAIRS))
    metrics = Metrics("digest", QUALITY)
    quality = Quality(state, metrics, at, History(), pods_to_come=0.3)
    finish(quality.round())
    state.nodes.replaced([])
    finish(quality.round())
    assert "gputopo_fragmentation_pods" not in families(metrics)


@pytest.mark.slow
async def test_a_served_extender_tells_of_what_it_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through filter, prioritize and bind, as kube-scheduler asks."""
    monkeypatch.setattr("extender.features.quality.feature.ROUND_SECONDS", 0.05)
    async with serving(tmp_path, SimulatedNode("n1", PAIRS)) as extender:
        made = await extender.create("p", 2)
        for verb in ("filter", "prioritize"):
            await extender.post(verb, {"Pod": made, "NodeNames": ["n1"]})
        metadata = made["metadata"]
        bound = {"PodName": "p", "PodNamespace": "default", "PodUID": metadata["uid"], "Node": "n1"}
        assert await extender.post("bind", bound) == (200, {"Error": ""})

        async def is_told() -> bool:
            _, text = await extender.get("/metrics", extender.health_url)
            return (
                'gputopo_placement_bandwidth_ratio_bucket{communication="heavy",le="1.0"} 1.0' in text
                and "gputopo_placement_loss_count 1.0" in text
                and 'gputopo_fragmentation_pods{gpus="2",when="now"} 3.0' in text
            )

        await eventually(is_told)
