"""On a real kubelet: a stub DRA driver prepares claims, and the agent hands out exactly the other GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from extender.cluster.objects.devices import DRIVER
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import GPUS, allocated, claiming, device_classes, publish, published
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import Installation
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.kubelet import ROOT
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME

PREPARE_SECONDS = 180.0
"""Far more than it takes; a kubelet that cannot prepare a claim tries again with the pod's next sync, a minute later."""
pytestmark = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")


@pytest.fixture
def classes(node_plane: Installation) -> Iterator[None]:
    """Have NVIDIA's device classes, and the controllers of claims."""
    with device_classes(node_plane.plane):
        yield


def start_driver(node: GpuNode) -> None:
    """Start the stub with the kubelet's own rights, and publish the node's GPUs."""
    user = yaml.safe_load(node.plane.kubeconfig(f"system:node:{node.name}").read_text())["users"][0]["user"]
    program = node.parts.tools / "dradriver"
    driver = node.run("dradriver", program, ROOT, DRIVER, SERVER=node.plane.url, TOKEN=user["token"])
    eventually(lambda: "connected" in driver.log_tail())
    publish(node.plane.admin, node.name, sorted(node.machine.uuids))


def claim(node: GpuNode, name: str, count: int, **request: Any) -> None:
    submit(node, claiming(node.plane.admin, pod(name, 0, schedulerName=SCHEDULER_NAME), count, GPUS, **request))


def test_containers_get_the_gpus_that_no_claim_holds(node_cluster: GpuCluster, classes: None, nodes: Nodes) -> None:
    """One that only looks on holds none, though the kubelet lists its devices like any others."""
    node = nodes.one("hgx_h100")
    enforcing(node)
    start_driver(node)
    claim(node, "by-claim", 3)
    wait_running(node_cluster, "by-claim", within_seconds=PREPARE_SECONDS)
    devices = allocated(node_cluster.api)
    held = {published(sorted(node.machine.uuids), device) for device in devices}
    claim(node, "monitor", 8, adminAccess=True)
    wait_running(node_cluster, "monitor", within_seconds=PREPARE_SECONDS)
    assert node.claimed() == {("by-claim", each) for each in devices} | {("monitor", f"gpu-{n}") for n in range(8)}
    submit(node, pod("rest", 5, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "rest")
    assert node.held() == {("rest", "main"): set(node.machine.uuids) - held}
    submit(node, pod("three", 3, schedulerName=SCHEDULER_NAME))
    eventually(lambda: node_cluster.why_pending("three"))
    node_cluster.delete("by-claim")
    wait_running(node_cluster, "three")
    assert node.held()["three", "main"] == held
