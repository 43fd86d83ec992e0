"""No topology holds up a call for long: not the worst that a search for it finds, not fifty of them, not one each second."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, islice
from random import Random
from statistics import median

import pytest

from extender.cluster.caches.node_cache import KnownNode
from extender.cluster.caches.topology_changes import CHANGES, WINDOW_SECONDS
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import args, at, cluster, node, pod
from tests.security.worst_topology import climb, costs_of, nested_topology, random_topology
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.annotations.payload import MAX_BYTES
from topology.effort import CALL_STEPS, SEARCH_STEPS, SLICE_STEPS, finish
from topology.errors import PayloadError
from topology.formats.catalog import MACHINES, machine
from topology.node.model import Gpu, NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import TopologyClasses
from topology.placement.verdict import UNDECIDED
from topology.request.gpu_request import GpuRequest

MOST_STEPS = CALL_STEPS + 8_000
"""Of a piece of work that nothing can come between: about 14 ms. A call ends with the piece that it had begun."""
RESTLESS = "GPU topology changes too often, and is not read before it has been still for a while"


def unlike(seed: int = 1, count: int = 16) -> NodeTopology:
    """Return GPUs no two of which are alike, joined at random."""
    drawn = random_topology(Random(seed), count)
    gpus = tuple(replace(gpu, uuid=f"{seed}-{gpu.index}", memory_bytes=2**34 + gpu.index) for gpu in drawn.gpus)
    return replace(drawn, gpus=gpus)


def steps_of(state: ClusterState) -> int:
    """Return what all classes have cost so far."""
    found = {view.shape.topology_class for view in state.views.values()}
    return sum(each.meter.steps for each in found if each)


def answer(state: ClusterState, name: str, gpus: int, *nodes: str) -> tuple[list[str], dict[str, str]]:
    """Return the nodes that pass, and the reasons of the others."""
    result = filter_nodes(state, args(pod(name, gpus), *nodes), at())
    return list(result.node_names), dict(result.failed_and_unresolvable_nodes or {})


@pytest.mark.slow
def test_the_worst_topology_that_hill_climbing_finds_costs_20_ms_at_once(
    request: pytest.FixtureRequest, figure: Callable[[str], None]
) -> None:
    """Calls, the slices between them and steps of the values, for what the search comes to from three beginnings."""
    rounds = 100 if request.config.getoption("--long") else 6
    found = [
        (cost, topology) for seed in (1, 2, 3) for costs, topology in islice(climb(seed), rounds) for cost in costs
    ]
    worst, topology = max(found, key=lambda each: each[0].steps)
    slowest = max((cost for cost, _ in found), key=lambda cost: cost.milliseconds)
    figure(f"worst topology ({len(topology)} GPUs): {worst.steps} steps in one piece, {worst.what}; longest: {slowest}")
    assert worst.steps <= MOST_STEPS


def test_unlike_gpus_are_passed_over_until_the_search_is_through() -> None:
    """The first call costs its budget and no more; then the node fits, with the very plan of a search without bounds."""
    state = cluster(node("n1", topology=encode_topology(unlike(count=11))))
    before = steps_of(state)
    assert answer(state, "first", 5, "n1") == ([], {"n1": UNDECIDED.sentence})
    assert steps_of(state) - before <= MOST_STEPS
    most = slices = 0
    before = steps_of(state)
    for _ in state.effort.work():
        most, before, slices = max(most, steps_of(state) - before), steps_of(state), slices + 1
    assert slices >= 3 and most <= SLICE_STEPS + 8_000
    assert answer(state, "second", 5, "n1") == (["n1"], {})
    compiled = state.views["n1"].shape.topology_class
    assert compiled is not None
    [found] = compiled._answers.values()
    assert found == decide(Situation(TopologyClass(compiled.node), (1 << 11) - 1), GpuRequest.plain(5))


@pytest.mark.slow
def test_fifty_such_nodes_share_the_budget_of_a_call() -> None:
    """An honest node beside them answers in the same call, and those that are not through give a reason."""
    forged = [node(f"bad{i}", topology=encode_topology(unlike(i))) for i in range(50)]
    state = cluster(node("good"), *forged)
    names = [item.metadata.name for item in forged]
    before = steps_of(state)
    assert answer(state, "first", 8, "good", *names)[0] == ["good"]
    assert answer(state, "second", 7, *names) == ([], dict.fromkeys(names, UNDECIDED.sentence))
    assert steps_of(state) - before <= 2 * MOST_STEPS


def test_a_node_with_another_topology_each_second_closes_and_opens_when_it_is_still() -> None:
    """The reason says so; what it publishes meanwhile is not even decoded."""
    state = cluster(node("n1"), node("good"))
    for second in range(1, CHANGES):
        finish(state.listening(float(second)))
        state.nodes.changed(node("n1", version=1 + second, topology=encode_topology(unlike(second))))
        assert state.views["n1"].shape.closed is None
    text = encode_topology(unlike(99))
    for second in range(CHANGES, CHANGES + 10):
        finish(state.listening(float(second)))
        state.nodes.changed(node("n1", version=1 + second, topology=text + " " * second))
        assert state.views["n1"].shape.closed == RESTLESS
    assert answer(state, "p", 1, "n1", "good")[0] == ["good"]
    finish(state.listening(CHANGES + 10 + WINDOW_SECONDS))
    assert state.views["n1"].shape.closed is None
    assert state.views["n1"].uuids[0] == "99-0"


@pytest.mark.slow
def test_a_node_that_changes_all_the_time_leaves_nothing_behind() -> None:
    """Over hours, with a search begun for each topology: no class, no table and no search but the last ones."""
    state = cluster(node("n1"), node("good"))
    for round_ in range(1, 60):
        finish(state.listening(round_ * WINDOW_SECONDS / 5))
        state.nodes.changed(node("n1", version=1 + round_, topology=encode_topology(unlike(round_))))
        assert answer(state, f"p{round_}", 8, "n1")[0] == []
    gc.collect()
    living = [each for each in gc.get_objects() if isinstance(each, TopologyClass) and each.effort is state.effort]
    assert len(living) == 2
    for _ in islice(state.effort.work(), 100):
        pass
    assert len(state.effort) <= 1


def test_payloads_that_cannot_be_read_leave_nothing_behind() -> None:
    """What was wrong with a payload is kept, and nothing of how that came out: else each version keeps the one before."""
    state = cluster(node("n1"), node("good"))
    for version in range(2, 40):
        broken = "{" * version
        state.nodes.changed(node("n1", version=version, topology=broken, status=broken, observed=broken, ledger=broken))
    assert state.views["n1"].shape.closed == RESTLESS
    gc.collect()
    nodes = (each for each in gc.get_objects() if isinstance(each, KnownNode))
    living = [each for each in nodes if each.node.metadata.name == "n1" and each.node.metadata.resource_version != "1"]
    assert living == [state.nodes.get("n1")]


def test_a_class_is_searched_beside_calls_only_while_somebody_has_it() -> None:
    """What waits for a machine that is gone is dropped."""
    state = cluster(node("n1", topology=encode_topology(unlike())))
    answer(state, "p", 8, "n1")
    assert len(state.effort) == 1
    state.nodes.deleted(node("n1", version=2, topology=encode_topology(unlike())))
    state.refresh()
    assert sum(1 for _ in state.effort.work()) <= 1


@pytest.mark.parametrize(
    ("gpus", "kinds", "is_open"),
    [(72, 1, True), (72, 12, True), (24, 24, True), (25, 25, False), (72, 72, False), (73, 1, False)],
)
def test_more_different_gpus_than_are_planned_for_close_the_node(gpus: int, kinds: int, is_open: bool) -> None:
    """Seventy-two GPUs are believed, of which no more than 24 have to stand for all: more would hold up others."""
    found = [{"uuid": f"u{i}", "index": i, "model": f"m{i % kinds}"} for i in range(gpus)]
    state = cluster(node("n1", topology=json.dumps({"v": 1, "gpus": found})))
    assert state.views["n1"].shape.closed == (None if is_open else "GPU topology cannot be read")


def test_gpus_that_only_requests_tell_apart_count_as_different() -> None:
    """All are wired alike, and each has another memory size."""
    gpus = tuple(Gpu(i, f"u{i}", "x", memory_bytes=2**34 + i) for i in range(72))
    state = cluster(node("n1", topology=encode_topology(NodeTopology(gpus))))
    assert state.views["n1"].shape.closed == "GPU topology cannot be read"


@pytest.mark.slow
def test_large_machines_that_are_nearly_regular_stay_within_the_budget(
    request: pytest.FixtureRequest, figure: Callable[[str], None]
) -> None:
    """Up to 72 GPUs in groups of groups, of which a few are others: read, asked about, searched between calls."""
    random = Random(7)
    machines = (nested_topology(random) for _ in range(1_000 if request.config.getoption("--long") else 30))
    fitting = (each for each in machines if len(each) > 16 and len(text_of(each)) <= MAX_BYTES)
    found = [(cost, len(each)) for each in fitting for cost in costs_of(each, random)]
    worst, gpus = max(found, key=lambda each: each[0].steps)
    slowest = max((cost for cost, _ in found), key=lambda cost: cost.milliseconds)
    figure(f"worst of nested topologies ({gpus} GPUs): {worst.steps} steps, {worst.what}; longest: {slowest}")
    assert worst.steps <= MOST_STEPS


def text_of(topology: NodeTopology) -> str:
    """Return the payload, or one that is too long where there is none."""
    try:
        return encode_topology(topology)
    except PayloadError:
        return " " * (MAX_BYTES + 1)


REFUSED: dict[str, str] = {
    "no JSON at all": "[" * MAX_BYTES,
    "a GPU too many": json.dumps({"v": 1, "gpus": [{"uuid": f"u{i}", "index": i, "model": "x"} for i in range(700)]}),
    "numbers": json.dumps({"v": 1, "gpus": [], "links": [[7]] * 5_000}),
    "links to nowhere": json.dumps(
        {"v": 1, "gpus": [], "links": [{"a": i % 1000, "b": 1 + i % 1000} for i in range(1_500)]}
    ),
    "keys": json.dumps({"v": 1} | {f"k{i}": i for i in range(2_000)}),
    "the last link is wrong": json.dumps(
        {
            "v": 1,
            "gpus": [{"uuid": f"u{i}", "index": i, "model": "x"} for i in range(64)],
            "links": [*({"a": a, "b": b} for a, b in islice(combinations(range(64), 2), 1_200)), {"a": 3, "b": 2}],
        }
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_payload_of_32_kib_is_refused_soon(
    name: str, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Whatever is wrong with it."""
    text = REFUSED[name]
    assert len(text) <= MAX_BYTES
    classes = TopologyClasses()
    seconds = []
    for version in range(2, 12):
        state = cluster(node("bad"))
        written = node("bad", version=version, topology=text)
        began = time.process_time()
        state.nodes.changed(written)
        seconds.append(time.process_time() - began)
        assert state.views["bad"].shape.closed == "GPU topology cannot be read"
    assert not len(classes)
    figure(f"{len(text)} bytes, {name}: refused in {1000 * median(seconds):.1f} ms of CPU")
    assert median(seconds) <= goal(0.02)


def test_the_topology_annotation_is_what_the_budget_is_about() -> None:
    """The forged nodes of these tests differ from an honest one in nothing else."""
    honest, forged = node("n1"), node("n1", topology=encode_topology(unlike()))
    one, other = dict(honest.metadata.annotations or {}), dict(forged.metadata.annotations or {})
    assert {key for key in one if one[key] != other[key]} == {keys.TOPOLOGY}


@pytest.mark.parametrize("name", MACHINES)
def test_no_plan_of_a_known_machine_needs_a_second_call(name: str) -> None:
    """Every size, with all GPUs free and nothing remembered."""
    for gpus in range(1, len(machine(name)) + 1):
        compiled = TopologyClass(machine(name))
        decide(Situation(compiled, (1 << len(machine(name))) - 1), GpuRequest(gpus))
        assert compiled.meter.steps <= SEARCH_STEPS
