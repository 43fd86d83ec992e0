"""GPUs of cordoned and tainted nodes are shown and do not count as free; what labels and taints forbid is a no to the pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, node_object
from extender.cluster.objects.kinds import Node, NodeSpec, Pod, Taint, Toleration
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.fragmentation import fragmentation
from extender.inspect.places import places
from extender.inspect.status import status
from extender.inspect.what_if import what_if
from extender.inspect.why import why
from extender.telemetry.gauges import gauges_of
from extender.web import pages
from tests.extender.builders import at, cluster, node, pod
from tests.extender.plugin import invoke
from topology.annotations import keys
from topology.effort import finish

CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
TEAM_B = Taint("dedicated", "NoSchedule", "team-b")


def with_spec(built: Node, *taints: Taint, unschedulable: bool = False) -> Node:
    return replace(built, spec=NodeSpec(list(taints) or None, unschedulable))


def asking(name: str, gpus: int, **spec: object) -> Pod:
    built = pod(name, gpus)
    return replace(built, spec=replace(built.spec, **spec))


NODES = (
    node("open", labels={"rack": "a"}),
    with_spec(node("cordoned", labels={"rack": "b"}), unschedulable=True),
    with_spec(node("tainted"), TEAM_B),
    with_spec(node("drained"), CORDON, unschedulable=True),
    with_spec(node("liked-less"), Taint("old", "PreferNoSchedule")),
    with_spec(node("of-gpus"), Taint(keys.GPU_RESOURCE, "NoSchedule", "present")),
)


def test_nodes_that_are_set_aside_are_shown_and_none_of_their_gpus_counts_as_free() -> None:
    """Cordoned ones from the moment of the cordon. A taint of the resource's name keeps no pod with GPUs away."""
    state = cluster(*NODES)
    rows = {row.name: row for row in inspection.nodes(state, inspection.node_names(state), at())}
    assert {name: row.free for name, row in rows.items()} == {
        "open": 8,
        "cordoned": 0,
        "tainted": 0,
        "drained": 0,
        "liked-less": 8,
        "of-gpus": 8,
    }
    assert rows["cordoned"].set_aside == rows["drained"].set_aside == "node is cordoned"
    assert rows["tainted"].set_aside == "taint dedicated=team-b:NoSchedule"
    assert [gpu.state for gpu in rows["cordoned"].gpus] == ["free"] * 8
    assert "set_aside" not in rows["open"].model_dump()


def test_sums_status_and_front_page_count_them_apart() -> None:
    """So that the numbers of all GPUs still agree."""
    state = cluster(*NODES)
    told, gauges = status(state), gauges_of(state)
    assert (told.gpus, told.free, told.free_set_aside) == (48, 24, 24)
    assert (gauges["gpus"], gauges["gpus_free"], gauges["gpus_free_set_aside"]) == (48, 24, 24)
    assert told.findings == ()
    page = "".join(pages.overview(gauges, [], [], [], []))
    assert "free on cordoned or tainted nodes, and do not count: 24" in page


def test_there_is_no_room_on_them() -> None:
    """By the sizes of pods, and by places."""
    by_size = {room.gpus: room for room in fragmentation(cluster(*NODES)).sizes}
    assert (by_size[8].now, by_size[8].by_count, by_size[8].empty) == (3, 3, 3)
    labels = {"topology.kubernetes.io/rack": "a"}
    state = cluster(node("n1", labels=labels), with_spec(node("n2", labels=labels), unschedulable=True))
    assert [(place.nodes, place.gpus, place.free, place.closed) for place in finish(places(state))] == [(2, 16, 8, 1)]


def test_a_taint_that_all_pods_with_gpus_tolerate_sets_nothing_aside() -> None:
    """As a setting says; a cordon does all the same."""
    state = cluster(*NODES, into=ClusterState(tolerated_taints=["dedicated"]))
    assert (status(state).free, status(state).free_set_aside) == (32, 16)


def test_a_node_counts_again_when_it_is_taken_back() -> None:
    """By the next version of it."""
    state = cluster(with_spec(node("n1"), unschedulable=True))
    assert gauges_of(state)["gpus_free"] == 0
    state.nodes.changed(node("n1", version=2))
    assert (gauges_of(state)["gpus_free"], gauges_of(state)["gpus_free_set_aside"]) == (8, 0)


def verdicts(state: ClusterState, name: str) -> dict[str, str]:
    told = why(state, "ml", name, at(), limit=10)
    assert told is not None
    return {each.node: "yes" if each.fits else f"{each.message}; {each.figures}" for each in told.nodes}


def test_why_says_of_each_node_what_labels_and_taints_say() -> None:
    """A pod that tolerates a taint may go there."""
    patient = [Toleration("dedicated", "Exists")]
    state = cluster(*NODES[:3], asking("any", 4), asking("b", 4, tolerations=patient))
    said = verdicts(state, "any")
    assert said["open"] == "yes"
    assert said["cordoned"] == "node is cordoned; "
    assert said["tainted"] == "the node has a taint that the pod does not tolerate; dedicated=team-b:NoSchedule"
    assert verdicts(state, "b")["tainted"] == "yes"


def test_a_selector_that_matches_no_node_fits_nowhere() -> None:
    """In every answer about one pod; the example tells which label."""
    lost = asking("lost", 4, node_selector={"rack": "zz"})
    state = cluster(*NODES, lost)
    told = inspection.explain(state, "ml", "lost", at())
    assert told is not None
    assert told.fits == what_if(state, lost, at()).fits == ()
    assert [(each.message, each.nodes) for each in told.refusals] == [("the pod's nodeSelector excludes the node", 6)]
    assert "rack=zz is selected" in told.refusals[0].figures


def test_a_long_label_is_cut() -> None:
    """Nobody else bounds it in a question."""
    asked = asking("p", 1, node_selector={"k" * 5_000: "v" * 5_000})
    assert len(what_if(cluster(*NODES), asked, at()).refusals[0].figures) < 300


def snapshot(folder: Path, *pods: dict[str, Any]) -> tuple[str, str]:
    """Return the option for a file with an open and a cordoned node and these pods."""
    cordoned = node_object(SimulatedNode("n2", "dgx-a100")) | {"spec": {"unschedulable": True}}
    items = [{"kind": "Node", **each} for each in (node_object(SimulatedNode("n1", "dgx-a100")), cordoned)]
    (folder / "cluster").write_text(json.dumps({"items": [*items, *pods]}))
    return "--snapshot", str(folder / "cluster")


@pytest.mark.parametrize("verb", [("why", "p", "-o", "wide"), ("pod", "p"), ("replay",)])
def test_the_plugin_ends_with_a_no(tmp_path: Path, verb: tuple[str, ...]) -> None:
    """Exit code 1, for a selector that matches no node."""
    made = gpu_pod("p", 4, {}, schedulerName="gputopo", nodeSelector={"zone": "zz"})
    identity = {**made["metadata"], "uid": "p", "namespace": "default", "resourceVersion": "1"}
    result = invoke(*verb, *snapshot(tmp_path, {"kind": "Pod", **made, "metadata": identity}))
    assert result.exit_code == 1
    assert "the pod's nodeSelector excludes the node" in result.stdout


def test_the_plugin_shows_what_is_set_aside(tmp_path: Path) -> None:
    """In the row of the node, and in the first line of the status."""
    rows = invoke("nodes", *snapshot(tmp_path)).stdout.splitlines()
    assert rows[2].startswith("n2 ")
    assert rows[2].endswith("node is cordoned: 8 free do not count")
    assert "16, 8 free (8 more on cordoned or tainted nodes)" in invoke("status", *snapshot(tmp_path)).stdout
    assert "; node is cordoned" in invoke("node", "n2", *snapshot(tmp_path)).stdout.splitlines()[0]
