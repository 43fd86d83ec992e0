"""NVIDIA's own device plugin and gpu-feature-discovery work on our fake driver: what they do here they do on a real node."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.nodes import programs
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia
from tests.cluster.nodes.pods import bound_pod, is_running, submit
from tests.cluster.nodes.questions import Question, preferred
from tests.cluster.polling import eventually
from topology.placement.nvidia_best_effort import best_effort

REQUESTS = 600


@pytest.fixture(scope="module")
def nvidia_programs(built: Callable[[GoBuild], Path]) -> Path:
    """Return the folder of NVIDIA's programs."""
    return built(programs.NVIDIA)


def test_hands_out_an_island(nodes: Nodes, nvidia_programs: Path) -> None:
    """The unchanged plugin reads links from the fake driver, and a pod of four gets four that are joined."""
    node = nodes.one("two_islands")
    nvidia(node, nvidia_programs)
    submit(node, bound_pod(node, "four", 4))
    eventually(lambda: is_running(node, "four"))
    (started,) = node.started()
    assert set(started.env["NVIDIA_VISIBLE_DEVICES"].split(",")) in (
        {*node.machine.uuids[:4]},
        {*node.machine.uuids[4:]},
    )


def test_xid_makes_a_gpu_unhealthy(nodes: Nodes, nvidia_programs: Path) -> None:
    """An event of the fake driver reaches the kubelet through the plugin's health check."""
    node = nodes.one("two_islands")
    nvidia(node, nvidia_programs)
    node.machine.xid(gpu=3, number=79)
    node.wait_allocatable(7)
    assert node.offered() == {uuid for uuid in node.machine.uuids if uuid != node.machine.uuids[3]}


def test_feature_discovery_labels_the_machine(nodes: Nodes, nvidia_programs: Path) -> None:
    """The labels that gpu-feature-discovery would put on the node say what the driver says."""
    node = nodes.one("hgx_h100")
    file = node.state / "labels"
    flags = ["--use-node-feature-api=false", "--oneshot", f"--output-file={file}"]
    node.run("gpu-feature-discovery", nvidia_programs / "gpu-feature-discovery", *flags)
    eventually(lambda: file.exists() and "gfd.timestamp" in file.read_text())
    labels = dict(line.split("=", 1) for line in file.read_text().split())
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/gpu.count"] == "8"
    assert labels["nvidia.com/cuda.driver-version.full"] == "535.129.03"


@pytest.mark.parametrize("machine", ["two_islands", "dgx1v"])
def test_model_of_the_plugin_agrees_with_the_plugin(nodes: Nodes, nvidia_programs: Path, machine: str) -> None:
    """For hundreds of random free sets in random order our model names the very GPUs that the plugin names."""
    node = nodes.one(machine)
    nvidia(node, nvidia_programs)
    chance = random.Random(0)
    asked = [random_question(node, chance) for _ in range(REQUESTS // 2)]
    socket = node.device_plugins / "nvidia-gpu.sock"
    answers = [set(answer.ids) for answer in preferred(node.parts.tools, socket, asked)]
    assert answers == [modelled(node, question) for question in asked]


def random_question(node: GpuNode, chance: random.Random) -> Question:
    available = chance.sample(node.machine.uuids, chance.randint(1, len(node.machine.uuids)))
    return Question(available, chance.randint(1, len(available)))


def modelled(node: GpuNode, question: Question) -> set[str]:
    uuids = node.machine.uuids
    chosen = best_effort(node.machine.topology, [uuids.index(uuid) for uuid in question.available], question.size)
    return {uuids[position] for position in chosen}
