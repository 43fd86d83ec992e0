"""U4 on the real API server: a DeviceClass maps the GPU resource, so nodes without a device plugin are kube-scheduler's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.candidates.openness import BY_DRA
from tests.cluster.binaries import is_oldest
from tests.cluster.gpu_cluster import GpuCluster, at_work, wants
from tests.cluster.installation import Installation
from tests.cluster.objects import GPU, NODES
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE

pytestmark = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 maps no resource to a DeviceClass")
CLASSES, SLICES = "/apis/resource.k8s.io/v1/deviceclasses", "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "gpu.example.com"
SLICE = {
    "metadata": {"name": "by-dra-gpus"},
    "spec": {
        "driver": DRIVER,
        "nodeName": "by-dra",
        "pool": {"name": "by-dra", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(8)],
    },
}
"""What a DRA driver publishes of a node's GPUs."""


@pytest.fixture
def cluster(installation: Installation, kubelets: None) -> Iterator[GpuCluster]:
    """Lend the installed control plane with an extender that looks for DeviceClasses every second, and one that maps GPUs."""
    admin = installation.plane.admin
    admin.post(CLASSES, {"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": GPU}})
    try:
        with at_work(installation, {"policies": {"look": "1s"}}) as lent:
            yield lent
    finally:
        admin.delete(f"{CLASSES}/gpus")
        admin.delete(SLICES)
        sweep(admin, keep=[NAMESPACE])


def test_only_nodes_without_a_device_plugin_are_left_to_dra(cluster: GpuCluster) -> None:
    """Pods get GPUs on all others; the last one waits with the reason, until nobody maps the resource any more."""
    cluster.join(SimulatedNode("served", "dgx-1v"), SimulatedNode("by-dra", "dgx-1v"))
    cluster.api.patch(f"{NODES}/by-dra/status", {"status": {"allocatable": {GPU: "0"}, "capacity": {GPU: "0"}}})
    assert cluster.extender.read("/readyz") == (200, "ok")
    cluster.submit(wants("first", 4), wants("second", 4))
    eventually(lambda: cluster.is_running("first") and cluster.is_running("second"))
    assert {cluster.node_of("first"), cluster.node_of("second")} == {"served"}
    assert cluster.placement("first").containers["main"] != cluster.placement("second").containers["main"]
    cluster.api.post(SLICES, SLICE)  # from now on kube-scheduler itself finds the node fit
    cluster.submit(wants("third", 4))
    eventually(lambda: BY_DRA in cluster.why_pending("third"))
