"""A device plugin that withdraws GPUs, stops to share them, or offers what nobody can use: none of it is planned.

What each of its configurations comes to is tried in `test_nvidia_configurations.py`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.plugin.devices.offers import MAY_GIVE_MIG, MAY_GIVE_SHARED, NOT_OFFERED, SHARED
from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import observing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia
from tests.cluster.nodes.pods import bound_pod, is_running, pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.extender.plugin import invoke
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import Sharer, decode_observed
from topology.annotations.status_codec import decode_status
from topology.node.status import GpuStatus

NOTHING_SHARED = "version: v1\n"
TIME_SLICING = """
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 2
"""
CONTAINED_MEMORY_ERROR = 94
"""An error of one program to us, and the end of a GPU to NVIDIA's plugin."""


@pytest.fixture
def programs_of_nvidia(built: Callable[[GoBuild], Path]) -> Path:
    """Return the folder of NVIDIA's programs."""
    return built(programs.NVIDIA)


def test_a_gpu_that_the_plugin_has_withdrawn_is_planned_for_nobody_until_the_plugin_restarts(
    node_cluster: GpuCluster, nodes: Nodes, programs_of_nvidia: Path
) -> None:
    """It never takes one back by itself, however well the GPU is to us; who asks is told what to do."""
    node = nodes.one("two_islands")
    plugin, lost = nvidia(node, programs_of_nvidia), node.machine.uuids[3]
    observing(node)
    node.machine.xid(gpu=3, number=CONTAINED_MEMORY_ERROR)
    node.wait_allocatable(7)
    eventually(lambda: NOT_OFFERED in said_of(node, lost).reasons)
    said = said_of(node, lost)
    assert (said.sick_since, said.offers) == (None, ())
    assert said.outlook is not None
    assert "restart the node's device plugin pod" in said.outlook.remedy
    shown = invoke("node", node.name, "--kubeconfig", str(node.plane.kubeconfig())).stdout
    assert "offered: GPUs 0, 1, 2, 4, 5, 6, 7: whole as nvidia.com/gpu\noffered: GPU 3: not offered\n" in shown
    node_cluster.submit(pod("seven", 7, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "seven")
    assert lost not in {gpu for gpus in node_cluster.placement("seven").containers.values() for gpu in gpus}
    plugin.stop()
    plugin.start()
    eventually(lambda: said_of(node, lost).healthy)
    node_cluster.submit(pod("one", 1, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "one")
    assert node_cluster.placement("one").containers == {"main": (lost,)}


def test_a_plugin_that_stops_to_share_is_waited_for(
    node_cluster: GpuCluster, nodes: Nodes, programs_of_nvidia: Path, tmp_path: Path
) -> None:
    """It would give out whole what a pod still has a replica of; the node opens when that pod is gone."""
    node, config = nodes.one("two_islands"), tmp_path / "config.yaml"
    config.write_text(TIME_SLICING)
    plugin = nvidia(node, programs_of_nvidia, replicas=2, CONFIG_FILE=str(config))
    observing(node)
    submit(node, bound_pod(node, "replica", 1))
    eventually(lambda: is_running(node, "replica"))
    eventually(lambda: all(SHARED in said_of(node, gpu).reasons for gpu in node.machine.uuids))
    eventually(lambda: sharers(node) == [(Sharer("default", "replica", "main"),)])
    plugin.stop()
    config.write_text(NOTHING_SHARED)
    plugin.start()
    node.wait_allocatable(8)
    eventually(lambda: all(MAY_GIVE_SHARED in said_of(node, gpu).reasons for gpu in node.machine.uuids))
    node_cluster.submit(wants("waits", 1))
    eventually(lambda: "no suitable GPU is free" in node_cluster.why_pending("waits"))
    node_cluster.delete("replica")
    wait_running(node_cluster, "waits")


def test_gpus_with_mig_on_that_are_offered_whole_close_the_others(
    node_cluster: GpuCluster, nodes: Nodes, programs_of_nvidia: Path
) -> None:
    """Without a MIG strategy the plugin takes them for whole ones, and may give them to any pod."""
    node = nodes.one("mig_on")
    nvidia(node, programs_of_nvidia)
    observing(node)
    cut = {node.machine.uuids[1], node.machine.uuids[6]}
    eventually(lambda: all(MAY_GIVE_MIG in said_of(node, gpu).reasons for gpu in node.machine.uuids if gpu not in cut))
    node_cluster.submit(wants("waits", 1))
    eventually(lambda: "no suitable GPU is free" in node_cluster.why_pending("waits"))
    assert node_cluster.node_of("waits") is None


def sharers(node: GpuNode) -> list[tuple[Sharer, ...]]:
    """Return who shares each of the GPUs that anybody shares, as the node's agent says."""
    return [*decode_observed(node.annotation(keys.OBSERVED) or "").shared.values()]


def said_of(node: GpuNode, gpu: str) -> GpuStatus:
    """Return what a node's agent says of a GPU."""
    status = decode_status(node.annotation(keys.STATUS) or "")
    return next(said for said in status.gpus if said.uuid == gpu)
