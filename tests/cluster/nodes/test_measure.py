"""Measuring on a real node: real scheduler, Job controller, kubelet and containers, and a program that prints like nccl-tests."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.cli import app
from tests.benchmarks.measure.nccl import write_all_reduce_perf
from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import USERS, Installation
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import allow_agent_pods, enforcing, ready_plugin
from tests.cluster.nodes.containerd import containerd
from tests.cluster.nodes.images import write_shell_archive
from tests.cluster.nodes.node import FLAGS, GpuNode, Parts, users
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.objects import ALL_PODS
from tests.cluster.polling import eventually
from tests.invoking import call
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys
from topology.annotations.measurements import decode_measurements
from topology.bandwidth.measured import kind_of
from topology.node.model import NodeTopology

IMAGE = "gputopo.test/nccl-tests:1"
KUBELET = {"address": "0.0.0.0"}
BY_ADDRESS = {**FLAGS, "kubelet-preferred-address-types": "InternalIP"}
JOBS = "/apis/batch/v1/jobs"


@pytest.fixture
def measured_cluster(binaries: Path) -> Iterator[GpuCluster]:
    """Start a control plane of its own, with controllers, and gputopo at work in it."""
    with ControlPlane(binaries, users={**USERS, **users(["n0"])}, flags=BY_ADDRESS) as plane:
        installed = Installation(plane)
        allow_agent_pods(plane)
        plane.start_controllers()
        with at_work(installed) as lent:
            yield lent


@pytest.fixture
def node(
    measured_cluster: GpuCluster, parts: Parts, built: Callable[[GoBuild], Path], tmp_path: Path
) -> Iterator[GpuNode]:
    """Lend a node with four GPUs, whose image of nccl-tests says ten GB/s and a half for each of them."""
    program, image = tmp_path / "all_reduce_perf", tmp_path / "image.tar"
    write_all_reduce_perf(program, NodeTopology(()), {}, default="$((gpus * 10)).5")
    write_shell_archive(image, IMAGE, {"/bin/all_reduce_perf": program})
    runtime = containerd(built(programs.CONTAINERD), built(programs.RUNC), images=[image])
    nodes = Nodes(measured_cluster.plane, parts)
    try:
        node = nodes.one("two_islands", runtime, KUBELET)
        enforcing(node)
        # `measure` looks at a node once, and it is not idle without these
        eventually(lambda: ready_plugin(node) and node.annotation(keys.LEDGER))
        yield node
    finally:
        nodes.stop()


def test_a_real_node_is_measured_by_a_real_job(measured_cluster: GpuCluster, node: GpuNode, tmp_path: Path) -> None:
    """The figures come from the pod's log by way of API server and kubelet, the ConfigMap has them, and all is tidied up."""
    admin = measured_cluster.plane.kubeconfig()
    arguments = (
        "--image",
        IMAGE,
        "--configmap",
        f"{NAMESPACE}/gpu-bandwidth",
        "--kubeconfig",
        str(admin),
        "-o",
        "json",
    )
    done = call(app, "measure", *arguments)

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {row["measured"]["point"] for row in rows} == {len(row["gpus"]) * 10 + 0.5 for row in rows} != set()
    assert {row["runs"] for row in rows} == {3}
    api = measured_cluster.api
    kept = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-bandwidth")["data"]["measured.json"]
    (machine,) = decode_measurements(kept).measurements.items()
    assert machine[0] == kind_of(node.machine.topology)
    assert len(machine[1].figures) == len(rows)
    assert api.list(JOBS) == []
    eventually(lambda: [pod for pod in api.list(ALL_PODS) if pod["metadata"]["namespace"] == "default"] == [])
    eventually(lambda: not measured_cluster.ledger(node.name).claims)
