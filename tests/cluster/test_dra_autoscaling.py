"""Placeholders for pods with claims of our DeviceClass, which matches no device; the test plays the autoscaler.

kube-scheduler knows nothing of our extender, and NVIDIA's driver is a stub that publishes devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.api import ApiError
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import API, GPUS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.objects import Json
from tests.cluster.planned_claims import (
    SETTINGS,
    allocations,
    assert_no_gpu_twice,
    claiming,
    claims_planned,
    join,
    sweep_claims,
    template,
)
from tests.cluster.polling import eventually
from tests.extender.plugin import invoke
from tests.extender.scattered import LABEL, NAMESPACE
from tests.world.kubelets import running_kubelets

pytestmark = [pytest.mark.slow, pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")]

CONTROLLERS = "job-controller,ttl-after-finished-controller,serviceaccount-controller"
JOBS, PODS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/api/v1/namespaces/{NAMESPACE}/pods"
TEMPLATES, CLAIMS = (f"{API}/namespaces/{NAMESPACE}/{kind}" for kind in ("resourceclaimtemplates", "resourceclaims"))


@pytest.fixture(scope="module")
def started(binaries: Path) -> Iterator[GpuCluster]:
    """Start a control plane with the chart's planner, which asks autoscalers for nodes."""
    settings = {**SETTINGS, "autoscaling": {"enabled": True, "after": "1s"}}
    with ControlPlane(binaries) as plane, running_kubelets(plane.kubeconfig()):
        controllers = plane.start_controllers(CONTROLLERS)
        with claims_planned(plane, "extender.autoscaling.enabled=true", settings=settings) as cluster:
            yield cluster
        controllers.stop()


@pytest.fixture
def cluster(started: GpuCluster) -> Iterator[GpuCluster]:
    """Lend it with one full node."""
    join(started, node("a"))
    started.submit(claiming("first", 8))
    eventually(lambda: started.is_running("first"))
    yield started
    started.api.delete(JOBS, propagationPolicy="Background")
    eventually(lambda: not left(started))
    sweep_claims(started)


def node(name: str) -> SimulatedNode:
    """Return a node of eight GPUs of a group that only its DRA driver offers."""
    return SimulatedNode(name, "dgx-a100", cpus=128, has_plugin=False, labels={LABEL: "a100.8"})


def left(cluster: GpuCluster) -> list[Json]:
    """Return all that there is of placeholders."""
    return [item for path in (JOBS, PODS, TEMPLATES, CLAIMS) for item in cluster.api.list(path)]


def unschedulable(cluster: GpuCluster) -> str:
    """Return what kube-scheduler says of a placeholder, as autoscalers read it."""
    conditions = [each for pod in cluster.api.list(PODS) for each in pod["status"].get("conditions", ())]
    return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), "")


@pytest.mark.parametrize("gpus", [4, 8])
def test_a_node_that_comes_for_a_placeholder_is_its_pods(cluster: GpuCluster, gpus: int) -> None:
    """kube-scheduler may give it devices first, where both fit: it is deleted then, and nothing of it is left."""
    cluster.submit(claiming("waits", gpus))
    eventually(partial(unschedulable, cluster))
    assert "cannot allocate all claims" in unschedulable(cluster)
    (claim,) = cluster.api.list(CLAIMS)
    (request,) = claim["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == (GPUS, gpus)
    with pytest.raises(ApiError, match="reserved"):
        template(cluster.api, "theirs", GPUS)
    join(cluster, node("b"))

    def is_running() -> bool:
        assert_no_gpu_twice(allocations(cluster))
        return cluster.is_running("waits")

    eventually(is_running)
    assert cluster.node_of("waits") == "b"
    eventually(lambda: not left(cluster))


def test_cleanup_removes_placeholders_with_their_claims(cluster: GpuCluster) -> None:
    """Kubernetes removes templates and claims with the Job, also where the extender has died."""
    cluster.submit(claiming("waits", 8))
    eventually(partial(unschedulable, cluster))
    cluster.extender.kill()
    try:
        invoke("cleanup", "--yes", "--kubeconfig", str(cluster.plane.kubeconfig()))
        eventually(lambda: not left(cluster), 30)
    finally:
        cluster.extender.start()
