"""Pods with claims of our class: the chart's planner allocates them, and a kube-scheduler knows nothing of it.

NVIDIA's driver is a stub that publishes devices; no container is prepared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from tests.cluster.api import Api
from tests.cluster.claims import ALL_CLAIMS, CLAIMS, SLICES, TEMPLATES, device_classes, publish, published
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import install_chart
from tests.cluster.objects import NODES, Json
from tests.cluster.polling import eventually, until_none
from tests.cluster.test_rbac import EXTENDER
from tests.manifests.rendered import NAMESPACE
from tests.manifests.test_chart_planner import PLANNER

OUR_CLASS: Final = "gpus.gputopo.dev"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "queue": {"enabled": True},
    "dra": {"enabled": True, "deadline": "5s"},
}
CHART: Final = (*PLANNER, "extender.config.dra.enabled=true", "policies.claims.gateTemplates=gpus-")
Given = Mapping[str, tuple[str, frozenset[str]]]
"""Pod → the node and the GPUs that its claim has."""


def planner_of(
    plane: ControlPlane, name: str = "extender", settings: Mapping[str, Any] | None = None
) -> ExtenderProcess:
    """Return an extender of the installed chart, with its account."""
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, EXTENDER)
    return ExtenderProcess(name, kubeconfig, plane.state, settings or SETTINGS)


@contextmanager
def claims_planned(plane: ControlPlane, *chart: str, settings: Mapping[str, Any] | None = None) -> Iterator[GpuCluster]:
    """Install the chart, and have planner, controllers and kube-scheduler at work, with a template for 1 to 8 GPUs each."""
    install_chart(plane, *CHART, *chart)
    extender = planner_of(plane, settings=settings)
    with device_classes(plane), extender.running():
        plane.start_scheduler()
        for count in range(1, 9):
            template(plane.admin, f"gpus-{count}", count=count)
        eventually(lambda: extender.metric("dra_guarded") == 1)
        yield GpuCluster(plane, extender)


def sweep_claims(cluster: GpuCluster) -> None:
    """Remove pods, claims, nodes and slices."""
    for namespace in cluster.api.list("/api/v1/namespaces"):
        cluster.api.delete(f"/api/v1/namespaces/{namespace['metadata']['name']}/pods", gracePeriodSeconds="0")
    cluster.api.delete(CLAIMS)
    until_none(lambda: cluster.api.list(ALL_CLAIMS))
    for collection in (NODES, SLICES):
        cluster.api.delete(collection)
    eventually(lambda: cluster.extender.metric("nodes") == 0)


def template(api: Api, name: str, device_class: str = OUR_CLASS, path: str = TEMPLATES, **exactly: object) -> None:
    """Create a template of claims of a class."""
    requests = [{"name": "gpus", "exactly": {"deviceClassName": device_class, **exactly}}]
    api.post(path, {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": requests}}}})


def join(cluster: GpuCluster, *nodes: SimulatedNode) -> None:
    """Let nodes join, and their drivers publish their GPUs."""
    cluster.join(*nodes)
    for node in nodes:
        publish(cluster.api, node.name, [gpu.uuid for gpu in node.topology.gpus])


def dra_node(name: str, cpus: int = 128) -> SimulatedNode:
    """Return a node of eight GPUs that only its DRA driver offers."""
    return SimulatedNode(name, "dgx-a100", cpus=cpus, has_plugin=False)


def claiming(name: str, gpus: int, cpus: int = 1) -> Json:
    """Return a pod whose GPUs are those of a claim. A policy adds our gate, as its template has a name of ours."""
    pod = gpu_pod(name, 0)
    pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": f"gpus-{gpus}"}]
    resources = pod["spec"]["containers"][0]["resources"]
    resources |= {"claims": [{"name": "gpus"}], "requests": {"cpu": str(cpus)}}
    return pod


def allocations(cluster: GpuCluster) -> dict[str, tuple[str, frozenset[str]]]:
    """Return pod → the node and the GPUs that its claim has, in all namespaces; of a claim without a template its own name."""
    given = dict[str, tuple[str, frozenset[str]]]()
    for claim in cluster.api.list(ALL_CLAIMS):
        if allocation := claim.get("status", {}).get("allocation"):
            results = allocation["devices"]["results"]
            node = results[0]["pool"]
            uuids = [gpu.uuid for gpu in dra_node(node).topology.gpus]
            owners = claim["metadata"].get("ownerReferences") or [claim["metadata"]]
            pod = owners[0]["name"]
            given[pod] = node, frozenset(published(uuids, result["device"]) for result in results)
    return given


def assert_no_gpu_twice(given: Given) -> None:
    """Fail if any GPU is in two of these claims."""
    counts = Counter(gpu for _, gpus in given.values() for gpu in gpus)
    assert [gpu for gpu, count in counts.items() if count > 1] == []
