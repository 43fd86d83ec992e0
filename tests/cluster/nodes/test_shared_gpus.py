"""Another device plugin that shares GPUs, or withdraws some: no pod is planned on what it would not get whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import observing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia
from tests.cluster.nodes.pods import pod, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.status_codec import decode_status

TIME_SLICING = """
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 2
"""


@pytest.fixture
def programs_of_nvidia(built: Callable[[GoBuild], Path]) -> Path:
    """Return the folder of NVIDIA's programs."""
    return built(programs.NVIDIA)


def test_shared_gpus_are_planned_for_nobody(
    node_cluster: GpuCluster, nodes: Nodes, programs_of_nvidia: Path, tmp_path: Path
) -> None:
    """Sixteen replicas of eight GPUs: two of one GPU may be one pod's, or those of two pods."""
    node, config = nodes.one("two_islands"), tmp_path / "config.yaml"
    config.write_text(TIME_SLICING)
    nvidia(node, programs_of_nvidia, replicas=2, CONFIG_FILE=str(config))
    observing(node)
    for gpu in node.machine.uuids:
        eventually(lambda gpu=gpu: "shared by the device plugin" in reasons(node, gpu))  # type: ignore[misc]
    node_cluster.submit(wants("pair", 2))
    eventually(lambda: node_cluster.why_pending("pair"))
    assert node_cluster.node_of("pair") is None


def test_a_gpu_that_the_plugin_has_withdrawn_is_planned_for_nobody(
    node_cluster: GpuCluster, nodes: Nodes, programs_of_nvidia: Path
) -> None:
    """It never takes back what an XID has cost it, while to us the GPU is well again after some minutes."""
    node = nodes.one("two_islands")
    nvidia(node, programs_of_nvidia)
    observing(node)
    node.machine.xid(gpu=3, number=79)
    lost = node.machine.uuids[3]
    node.wait_allocatable(7)
    eventually(lambda: "not offered by the device plugin" in reasons(node, lost))
    node_cluster.submit(pod("seven", 7, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "seven")
    assert lost not in {gpu for gpus in node_cluster.placement("seven").containers.values() for gpu in gpus}


def reasons(node: GpuNode, gpu: str) -> tuple[str, ...]:
    """Return what a node's agent says of a GPU."""
    status = decode_status(node.annotation(keys.STATUS) or "")
    return next(said.reasons for said in status.gpus if said.uuid == gpu)
