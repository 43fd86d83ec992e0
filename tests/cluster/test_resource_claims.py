"""GPUs that ResourceClaims hold, as the real kube-scheduler allocates them and the real controller lets go.

The driver is a stub: it publishes what NVIDIA's does, and no container is ever prepared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.candidates.openness import UNKNOWN_DEVICE
from extender.inspect.faults import HELD_BY_CLAIM
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import GPUS, SLICED, SLICES, allocated, claiming, device_classes, publish, published
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.gpu_cluster import GpuCluster, at_work, uuids, wants
from tests.cluster.installation import Installation
from tests.cluster.objects import Json
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.dra import mig
from tests.extender.plugin import invoke
from tests.manifests.helm import CHART, HelmUnavailable, helm
from tests.manifests.rendered import NAMESPACE

pytestmark = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BOTH, OTHER = SimulatedNode("both", "dgx-a100"), SimulatedNode("other", "dgx-a100")


@pytest.fixture
def cluster(installation: Installation, kubelets: None) -> Iterator[GpuCluster]:
    """Lend the installed control plane with NVIDIA's device classes and the controllers of claims."""
    try:
        with device_classes(installation.plane), at_work(installation) as lent:
            yield lent
    finally:
        sweep(installation.plane.admin, keep=[NAMESPACE])


def publish_gpus(cluster: GpuCluster, node: SimulatedNode, *more: Json, generation: int = 1) -> None:
    publish(cluster.api, node.name, [each.uuid for each in node.topology.gpus], *more, generation=generation)


def claim(cluster: GpuCluster, name: str, count: int, device_class: str = GPUS, **request: Any) -> None:
    """Create a pod that claims devices on the node with both, as a DRA user does; wait until it runs."""
    cluster.submit(claiming(cluster.api, there(name, 0), count, device_class, **request))
    eventually(lambda: cluster.is_running(name))


def reasons(cluster: GpuCluster) -> dict[str, str]:
    """Return UUID → why it is not free, of the node with both."""
    status, text = cluster.extender.read(f"/v1/inspect/nodes/{BOTH.name}")
    assert status == 200
    return {each["uuid"]: "; ".join(each["reasons"]) for each in json.loads(text)["gpus"] if each["state"] != "free"}


def there(name: str, gpus: int) -> Json:
    return wants(name, gpus, nodeSelector={"kubernetes.io/hostname": BOTH.name})


def test_gpus_of_claims_are_left_alone_until_they_are_let_go(cluster: GpuCluster) -> None:
    """A pod gets exactly the others; one that needs all waits, until the claim is gone."""
    cluster.join(BOTH)
    publish_gpus(cluster, BOTH)
    claim(cluster, "by-claim", 3)
    held = {published([each.uuid for each in BOTH.topology.gpus], name) for name in allocated(cluster.api)}
    eventually(lambda: reasons(cluster).keys() == held)
    assert all(text.startswith(f"{HELD_BY_CLAIM}default/by-claim-gpus-") for text in reasons(cluster).values())
    told = invoke("node", BOTH.name, "--kubeconfig", str(cluster.plane.kubeconfig())).stdout
    assert told.count(f"{HELD_BY_CLAIM}default/by-claim-gpus-") == 3
    cluster.submit(there("rest", 5))
    eventually(lambda: cluster.is_running("rest"))
    assert cluster.claims(BOTH.name, "rest") == uuids(BOTH, range(8)) - held
    cluster.submit(there("three", 3))
    eventually(lambda: cluster.why_pending("three"))
    assert cluster.node_of("three") is None
    assert cluster.extender.metric("gpus_held_by_claims") == 3
    cluster.delete("by-claim")
    eventually(lambda: cluster.is_running("three"))
    assert cluster.claims(BOTH.name, "three") == held


def test_a_slice_holds_its_gpu_and_admin_access_holds_none(cluster: GpuCluster) -> None:
    """kube-scheduler gives the monitor every GPU, to look at."""
    cluster.join(BOTH)
    publish_gpus(cluster, BOTH, mig(5, BOTH.topology.gpus[2].uuid, 0))
    claim(cluster, "monitor", 8, adminAccess=True)
    claim(cluster, "small", 1, SLICED)
    assert allocated(cluster.api) == [*(f"gpu-{minor}" for minor in range(6)), "gpu-5-mig-1g5gb-19-0", "gpu-6", "gpu-7"]
    eventually(lambda: reasons(cluster).keys() == uuids(BOTH, [2]))


def test_a_device_that_cannot_be_matched_closes_its_node_and_no_other(cluster: GpuCluster) -> None:
    """The driver is gone with its slices; when it publishes a newer generation, the node opens.

    kube-scheduler does not look at slices for a pod that we have refused, so it has to be told.
    """
    cluster.join(BOTH, OTHER)
    publish_gpus(cluster, BOTH)
    claim(cluster, "by-claim", 1)
    cluster.api.delete(f"{SLICES}/both-1")
    eventually(lambda: cluster.extender.metric("nodes_closed") == 1)
    cluster.submit(there("here", 1), wants("anywhere", 8))
    eventually(lambda: UNKNOWN_DEVICE in cluster.why_pending("here") and cluster.is_running("anywhere"))
    assert cluster.node_of("anywhere") == OTHER.name
    cluster.await_quiet()
    publish_gpus(cluster, BOTH, generation=2)
    eventually(lambda: cluster.is_running("here"))
    (held,) = (uuid for uuid, why in reasons(cluster).items() if why.startswith(HELD_BY_CLAIM))
    assert cluster.claims(BOTH.name, "here").isdisjoint({held})


def test_a_gpu_that_kube_scheduler_gives_away_although_a_pod_has_it_is_told(cluster: GpuCluster) -> None:
    """It knows nothing of device plugins' GPUs, so with two planners for a node it may; nobody's claim is touched."""
    cluster.join(BOTH)
    publish_gpus(cluster, BOTH)
    cluster.submit(there("planned", 8))
    eventually(lambda: cluster.is_running("planned"))
    claim(cluster, "by-claim", 2)
    eventually(lambda: cluster.extender.metric("gpus_in_conflict") == 2)
    assert len(cluster.claims(BOTH.name, "planned")) == 8
    eventually(lambda: len({*map(about, cluster.events("GPUConflict"))}) == 2)
    said = {about(event): event["message"] for event in cluster.events("GPUConflict")}
    assert re.search(r"is held by default/planned and ResourceClaim default/by-claim-\S+;", said[BOTH.name])
    assert "held by another pod or ResourceClaim, too" in said["planned"]


def about(event: Json) -> str:
    name: str = event["involvedObject"]["name"]
    return name


def test_without_the_right_nothing_is_read_and_nothing_breaks(installation: Installation) -> None:
    """An extender with an account of its own, which the chart's option gives the right while it runs."""
    plane, admin, name, rules = installation.plane, installation.plane.admin, "alone", rules_of_the_option()
    account = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    admin.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}})
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, name)
    extender = ExtenderProcess(name, kubeconfig, plane.state, {"policies": {"look": "1s"}})
    grant(plane, "gputopo-extender", account)
    try:
        with extender.running():
            assert extender.read("/readyz") == (200, "ok")
            eventually(lambda: extender.metric("resource_claims_watched") == 0)
            admin.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
            grant(plane, name, account)
            eventually(lambda: extender.metric("resource_claims_watched") == 1)
    finally:
        for role in ("gputopo-extender", name):
            admin.delete(f"{RBAC}/clusterrolebindings/{role}-{name}")
        admin.delete(f"{RBAC}/clusterroles/{name}")


def grant(plane: ControlPlane, role: str, account: Json) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    metadata = {"name": f"{role}-{account['name']}"}
    plane.admin.post(f"{RBAC}/clusterrolebindings", {"metadata": metadata, "roleRef": reference, "subjects": [account]})


def rules_of_the_option() -> list[Json]:
    """Return what `extender.readResourceClaims` adds to the extender's role."""
    values = ("image.repository=gputopo", "extender.readResourceClaims=true")
    try:
        rendered = helm(
            "template",
            "gputopo",
            CHART,
            "--namespace",
            NAMESPACE,
            *(word for value in values for word in ("--set", value)),
        )
    except HelmUnavailable as reason:
        pytest.skip(str(reason))
    rules = [rule for found in yaml.safe_load_all(rendered) if found for rule in found.get("rules") or ()]
    return [rule for rule in rules if rule["apiGroups"] == ["resource.k8s.io"]]
