"""A cluster as kubectl shows it, as a trace of its own: what is kept, and what is said of lists that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.placement.jobs import PodSize
from benchmarks.placement.registry import SCENARIOS
from benchmarks.placement.traces.files import BadTrace
from benchmarks.placement.traces.node_types import GUESSES, Assumption, NodeKind, NodeTypes, read_assumptions
from benchmarks.placement.traces.openb import OpenbTrace
from benchmarks.placement.traces.snapshot import write_snapshot
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.status import GpuStatus, NodeGpuStatus

PRODUCT = {"nvidia.com/gpu.product": "Tesla-V100"}


def node(name: str, gpus: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return what kubectl shows of a node with 96 cores and 512 GiB."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": PRODUCT if gpus else {}, "annotations": annotations or {}},
        "status": {"allocatable": {"cpu": "96", "memory": "512Gi", keys.GPU_RESOURCE: str(gpus)}},
    }


def pod(name: str, gpus: int, node_name: str = "", phase: str = "Running", **annotations: str) -> dict[str, Any]:
    """Return what kubectl shows of a pod with 8 cores and 64 GiB."""
    asked = {"cpu": "8", "memory": "64Gi"} | ({keys.GPU_RESOURCE: str(gpus)} if gpus else {})
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "annotations": annotations},
        "spec": {"nodeName": node_name, "containers": [{"name": "main", "resources": {"requests": asked}}]},
        "status": {"phase": phase},
    }


def snapshot(folder: Path, nodes: list[Any], pods: list[Any]) -> OpenbTrace:
    """Write both lists as kubectl does, and the folder."""
    for name, items in (("nodes", nodes), ("pods", pods)):
        (folder / f"{name}.json").write_text(json.dumps({"kind": "List", "items": items}))
    write_snapshot(folder / "nodes.json", folder / "pods.json", folder / "trace")
    return OpenbTrace(folder / "trace")


def test_nodes_with_gpus_are_kept_less_what_other_pods_hold(tmp_path: Path) -> None:
    """A daemon without GPUs takes its CPU and memory from the pods to be placed."""
    found = snapshot(tmp_path, [node("a", 8), node("b", 0)], [pod("daemon", 0, "a"), pod("elsewhere", 0, "b")])
    assert [(s.name, len(s.topology), s.cpu_milli, s.memory_mib, s.model) for s in found.servers()] == [
        ("a", 8, 88_000, 448 * 1024, "Tesla-V100")
    ]


def test_pods_are_kept_waiting_or_running(tmp_path: Path) -> None:
    """Those that have ended hold nothing; patterns of models are written out."""
    here = pod("mine", 2, "a", **{keys.GPU_MODEL: "*v100*"})
    found = snapshot(
        tmp_path, [node("a", 8)], [here, pod("waits", 1, phase="Pending"), pod("over", 4, "a", "Succeeded")]
    )
    assert found.pods("now") == (
        PodSize(2, cpu_milli=8000, memory_mib=65_536, models=("Tesla-V100",)),
        PodSize(1, cpu_milli=8000, memory_mib=65_536),
    )


def test_wires_are_those_that_the_agents_published(tmp_path: Path) -> None:
    """Machines of one kind share a file."""
    wires = {keys.TOPOLOGY: encode_topology(machine("dgx-1v"))}
    found = snapshot(tmp_path, [node("a", 8, wires), node("b", 8, wires), node("c", 8)], [])
    a, b, c = found.servers()
    assert a.topology is b.topology
    assert a.topology.nvlinks(0, 3) == machine("dgx-1v").nvlinks(0, 3) == 2
    assert not c.topology.links


def labelled(name: str, gpus: int, product: str) -> dict[str, Any]:
    """Return a node whose GPUs have this product, and which no agent describes."""
    made = node(name, gpus)
    made["metadata"]["labels"] = {"nvidia.com/gpu.product": product}
    return made


@pytest.mark.parametrize(
    ("product", "gpus", "node_type"),
    [
        ("Tesla-V100-SXM2-32GB", 8, "dgx-1v"),
        ("NVIDIA-A100-SXM4-80GB", 8, "dgx-a100"),
        ("NVIDIA-A100-80GB-PCIe", 8, "a100-pcie-8-pairs"),
        ("NVIDIA-H100-80GB-HBM3", 4, "h100-sxm5-4"),
        ("NVIDIA-L4", 8, "l4-8"),
        ("NVIDIA-L40S", 4, "l40s-4"),
        ("NVIDIA-GB200", 4, "gb200-tray"),
    ],
)
def test_a_node_without_an_agent_is_guessed_from_product_and_number(
    tmp_path: Path, product: str, gpus: int, node_type: str
) -> None:
    """The wires are those of the machine that such nodes most often are."""
    (server,) = snapshot(tmp_path, [labelled("a", gpus, product)], [pod("p", 1)]).servers()
    assert server.topology.links == machine(node_type).links
    (assumption,) = read_assumptions(tmp_path / "trace")
    assert assumption == Assumption(NodeKind(product, gpus), 1, node_type, is_guess=True)


@pytest.mark.parametrize(
    ("product", "gpus"),
    [("NVIDIA-H200-NVL", 8), ("NVIDIA-H100-PCIe", 8), ("NVIDIA-A100-SXM4-80GB", 7), ("NVIDIA-A10G", 4), ("", 8)],
)
def test_what_may_be_wired_in_many_ways_is_not_guessed(tmp_path: Path, product: str, gpus: int) -> None:
    """Nothing is assumed of it."""
    snapshot(tmp_path, [labelled("a", gpus, product)], [pod("p", 1)])
    assert read_assumptions(tmp_path / "trace") == ()


def test_an_agent_knows_better_than_a_guess(tmp_path: Path) -> None:
    """Even where what it published cannot be used."""
    described = labelled("a", 8, "NVIDIA-A100-SXM4-80GB")
    described["metadata"]["annotations"] = {keys.TOPOLOGY: encode_topology(machine("dgx-1v"))}
    (server,) = snapshot(tmp_path, [described], [pod("p", 1)]).servers()
    assert server.topology.links == machine("dgx-1v").links
    assert read_assumptions(tmp_path / "trace") == ()


def test_the_user_names_a_node_type_or_a_file(tmp_path: Path) -> None:
    """It counts instead of a guess, for all products that match."""
    text = tmp_path / "topo.json"
    text.write_text(encode_topology(machine("h100-nvl-8-pairs")))
    kinds = {NodeKind("NVIDIA-A100-SXM4-80GB", 8): 3, NodeKind("NVIDIA-H100-NVL", 8): 1}
    assumed = NodeTypes.parse([f"NVIDIA-H100*={text}", "*A100*=hgx-h800"]).of(kinds)
    assert [assumption.node_type for assumption in assumed] == ["hgx-h800", str(text)]
    assert [len(topology) for topology in assumed.values()] == [8, 8]
    assert not any(assumption.is_guess for assumption in assumed)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("NVIDIA-A100-SXM4-80GB", "write PRODUCT=NODE_TYPE"),
        ("=dgx-a100", "write PRODUCT=NODE_TYPE"),
        ("NVIDIA-A100-SXM4-80GB=dgx-2", "dgx-2 has 16 GPUs, and such nodes have 8"),
        ("NVIDIA-A100-SXM4-80GB=nothing", "nothing: no such file"),
        ("Banana*=dgx-a100", "no node without an agent has this product; there are: NVIDIA-A100-SXM4-80GB"),
    ],
)
def test_a_node_type_that_cannot_be_used_is_refused(word: str, reason: str) -> None:
    """With what was given, and why."""
    with pytest.raises(BadTrace, match=re.escape(reason)):
        NodeTypes.parse([word]).of({NodeKind("NVIDIA-A100-SXM4-80GB", 8): 2})


def test_every_guess_has_as_many_gpus_as_its_nodes() -> None:
    """Of machines that are in the catalogue."""
    assert all(len(machine(name)) == gpus for (_, gpus), name in GUESSES.items())


def test_a_sick_gpu_is_no_part_of_the_machine(tmp_path: Path) -> None:
    """The device plugin offers seven of eight; the wires of these seven are kept."""
    machine_v = machine("dgx-1v")
    status = NodeGpuStatus(1, (GpuStatus(machine_v.gpus[3].uuid, healthy=False),))
    said = {keys.TOPOLOGY: encode_topology(machine_v), keys.STATUS: encode_status(status)}
    (found,) = snapshot(tmp_path, [node("a", 7, said)], []).servers()
    assert [gpu.index for gpu in found.topology.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert found.topology.nvlinks(0, 3) == machine_v.nvlinks(0, 4) == 2


def test_wires_of_more_gpus_than_a_node_offers_are_left_out(tmp_path: Path) -> None:
    """Nobody says which of the eight are the seven."""
    wires = {keys.TOPOLOGY: encode_topology(machine("dgx-1v"))}
    (found,) = snapshot(tmp_path, [node("a", 7, wires)], []).servers()
    assert (len(found.topology), found.topology.links) == (7, ())


def test_a_list_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    """Nothing half written, which would be taken for a trace."""
    with pytest.raises(BadTrace, match="node a: "):
        snapshot(tmp_path, [node("a", 8, {keys.TOPOLOGY: "{"})], [])
    assert not (tmp_path / "trace").exists()


def test_a_snapshot_is_a_trace_with_bandwidth(tmp_path: Path) -> None:
    """The experiment of the traces runs on it; the product finds faster sets than a policy that sees no wires."""
    wires = {keys.TOPOLOGY: encode_topology(machine("dgx-1v"))}
    sizes = (1, 1, 2, 2, 4)
    snapshot(tmp_path, [node(f"n{i}", 8, wires) for i in range(4)], [pod(f"p{i}", n) for i, n in enumerate(sizes)])
    scenario = SCENARIOS["inflation"](tmp_path / "trace")
    ratio = {
        policy: next(row.value for row in scenario.run("now", policy, 1) if row.metric == "bandwidth_ratio_mean")
        for policy in ("random", "gputopo")
    }
    assert ratio["random"] < ratio["gputopo"] <= 1


def test_an_nvswitch_alone_is_wiring_too(tmp_path: Path) -> None:
    """Nothing else is known of the machine: its pods talk, and all sets are as fast as the best."""
    wires = {keys.TOPOLOGY: encode_topology(machine("gb200-tray"))}
    snapshot(tmp_path, [node("n", 4, wires)], [pod("p", 2)])
    rows = SCENARIOS["inflation"](tmp_path / "trace").run("now", "gputopo", 1)
    assert [row.value for row in rows if row.metric == "bandwidth_ratio_mean"] == [1.0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "nodes.json: .*truncated"),
        ("[]", "nodes.json: .*object"),
        (json.dumps({"items": [node("a", -1)]}), "node a: nv"),
        (json.dumps({"items": [node("a", 0)]}), "nodes.json: no node has nvidia.com/gpu"),
    ],
)
def test_names_file_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    """What kubectl never prints is not guessed at."""
    (tmp_path / "nodes.json").write_text(text)
    (tmp_path / "pods.json").write_text('{"items": []}')
    with pytest.raises(BadTrace, match=reason):
        write_snapshot(tmp_path / "nodes.json", tmp_path / "pods.json", tmp_path / "trace")
