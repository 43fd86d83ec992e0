"""The real Karpenter: a node comes for a pod that is refused for links, only where it helps, and goes again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.api import ApiError
from tests.cluster.claims import CLAIMS
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.installation import ACCOUNT
from tests.cluster.karpenter.provisioning import (
    INSTANCE_TYPE,
    JOBS,
    PLACEHOLDERS,
    Provisioning,
    instance_type,
    provisioning,
)
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from tests.cluster.queueing import OURS, PLAIN
from tests.cluster.sweep import sweep
from tests.extender.plugin import invoke
from tests.manifests.rendered import NAMESPACE, SCHEDULER_NAME
from tests.world.kubelets import running_kubelets

pytestmark = [pytest.mark.slow]

# Cheapest first: a machine without NVLink costs least.
TYPES = (instance_type("l4.8", 8, 1.0), instance_type("v100.8", 8, 10.0), instance_type("h100.8", 8, 30.0))
SCATTERED = tuple(
    SimulatedNode(f"v100-{number}", "dgx-1v", used=(2, 3, 4, 5), labels={INSTANCE_TYPE: "v100.8"})
    for number in range(2)
)
"""Four GPUs are free on each, of which no four share a ring of NVLinks."""
WITHOUT_NVLINK = SimulatedNode("l4-0", "l4-8", labels={INSTANCE_TYPE: "l4.8"})
ON = {"enabled": True, "after": "1s"}
RING = wants("ring", 4, "required-affinity: nvlink")
LONG_ENOUGH_SECONDS = 12.0
"""For Karpenter, which looks at pods that wait every ten seconds."""


@pytest.fixture(scope="module")
def karpenter(binaries: Path) -> Iterator[Provisioning]:
    """Start a control plane with Karpenter and simulated kubelets."""
    with provisioning(binaries, TYPES) as lent, running_kubelets(lent.plane.kubeconfig()):
        yield lent


@pytest.fixture
def cloud(karpenter: Provisioning) -> Iterator[Provisioning]:
    """Lend it with what the chart adds for autoscaling, and empty it again."""
    karpenter.install_autoscaling()
    yield karpenter
    admin = karpenter.plane.admin
    admin.delete(JOBS, propagationPolicy="Background")
    for pod in admin.list(PODS):
        admin.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds="0")
    eventually(lambda: not karpenter.placeholders())
    time.sleep(2)  # Karpenter may be about to buy for a placeholder that it has just seen
    eventually(lambda: nothing_is_bought(karpenter))
    sweep(admin, keep=[NAMESPACE, PLACEHOLDERS])


def nothing_is_bought(karpenter: Provisioning) -> bool:
    """Have deleted what was bought; return whether there was nothing."""
    bought = karpenter.claims()
    for claim in bought:
        with suppress(ApiError):  # it went by itself
            karpenter.plane.admin.delete(f"/apis/karpenter.sh/v1/nodeclaims/{claim['metadata']['name']}")
    return not bought


def waits_refused(cluster: GpuCluster, name: str) -> bool:
    """Whether kube-scheduler has told why no node will do."""
    return "NVLink" in cluster.why_pending(name) or "GB/s" in cluster.why_pending(name)


def test_a_node_comes_for_a_pod_that_needs_a_ring_and_goes_after_it(cloud: Provisioning) -> None:
    """Counts suffice, so without a placeholder none comes; with one, exactly one of the type that helps."""
    with cloud.at_work() as cluster:
        cluster.join(*SCATTERED, WITHOUT_NVLINK)
        cluster.submit(RING)
        eventually(partial(waits_refused, cluster, "ring"))
        time.sleep(LONG_ENOUGH_SECONDS)
        assert cloud.claims() == []
    with cloud.at_work(**ON) as cluster:
        [node] = eventually(cloud.new_nodes)
        name = node["metadata"]["name"]
        assert node["metadata"]["labels"][INSTANCE_TYPE] == "v100.8"
        assert "placeholder for 5 GPUs" in told(cluster, "GPUNodeAsked", "ring")
        eventually(lambda: not cloud.placeholders() and not cluster.api.list(JOBS))
        assert name in told(cluster, "GPUNodeCame", "ring")
        assert_not_used_before_its_agent_reports(cloud, cluster, name)
        cloud.report(name, "dgx-1v")
        eventually(partial(cluster.is_running, "ring"))
        assert cluster.node_of("ring") == name
        time.sleep(LONG_ENOUGH_SECONDS)
        assert len(cloud.claims()) == 1
        cluster.delete("ring")
        eventually(lambda: not cloud.claims() and not cloud.new_nodes(), 90)


@pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, PLAIN])
def test_a_node_comes_for_a_pod_in_the_queue(cloud: Provisioning, scheduler: str) -> None:
    """Karpenter does not see the pod. A kube-scheduler that knows no extender may bind the placeholder, which is deleted then."""
    with cloud.planned(scheduler, **ON) as cluster:
        cluster.join(*SCATTERED)
        cluster.submit(wants("queued", 8, schedulerName=scheduler, schedulingGates=[OURS]))
        [node] = eventually(cloud.new_nodes)
        name = node["metadata"]["name"]
        assert node["metadata"]["labels"][INSTANCE_TYPE] == "v100.8"
        assert "placeholder for 8 GPUs" in told(cluster, "GPUNodeAsked", "queued")
        cloud.boot(name)
        eventually(lambda: not cloud.placeholders() and not cluster.api.list(JOBS))
        eventually(lambda: has_joined(cloud, name))
        assert cluster.node_of("queued") is None
        cloud.report(name, "dgx-1v")
        eventually(partial(cluster.is_running, "queued"))
        assert cluster.node_of("queued") == name
        assert len(cloud.claims()) == 1


def told(cluster: GpuCluster, reason: str, pod: str) -> str:
    """Return what a pod was told, once it was."""
    found = eventually(lambda: [event for event in cluster.events(reason) if event["involvedObject"]["name"] == pod])
    return str(found[0]["message"])


def assert_not_used_before_its_agent_reports(cloud: Provisioning, cluster: GpuCluster, name: str) -> None:
    """See that nobody is placed on a node that is up, that no other one is bought, and that nobody is alarmed."""
    cloud.boot(name)
    eventually(lambda: has_joined(cloud, name))
    time.sleep(LONG_ENOUGH_SECONDS / 2)
    assert cluster.node_of("ring") is None
    assert (len(cloud.claims()), cloud.placeholders()) == (1, [])
    assert cluster.extender.metric("nodes_closed") == 0


def has_joined(cloud: Provisioning, name: str) -> bool:
    """Whether Karpenter calls a node initialized: it took away its taint."""
    labels: dict[str, str] = cloud.plane.admin.get(f"{NODES}/{name}")["metadata"]["labels"]
    return labels.get("karpenter.sh/initialized") == "true"


def test_no_node_comes_for_a_pod_that_none_would_help(cloud: Provisioning) -> None:
    """It asks for more bandwidth than an empty machine of any group has; it is told so."""
    with cloud.at_work(**ON) as cluster:
        cluster.join(*SCATTERED, WITHOUT_NVLINK)
        cluster.submit(wants("greedy", 4, "min-bandwidth: 9000"))
        why = told(cluster, "GPUNodeNotAsked", "greedy")
        assert why == "autoscalers are not asked for a new node: an empty node of no known group would take the pod"
        time.sleep(LONG_ENOUGH_SECONDS)
        assert (cloud.claims(), cluster.api.list(JOBS)) == ([], [])


def test_a_node_comes_of_a_group_that_was_declared(cloud: Provisioning) -> None:
    """No node of it was ever seen. Pod and placeholder fit there together, so the placeholder stays until the pod is bound."""
    with cloud.at_work(**ON) as cluster:
        cluster.join(*SCATTERED, WITHOUT_NVLINK)
        cluster.submit(wants("fast", 4, "min-bandwidth: 300"))
        [node] = eventually(cloud.new_nodes)
        name = node["metadata"]["name"]
        assert node["metadata"]["labels"][INSTANCE_TYPE] == "h100.8"
        cloud.boot(name)
        time.sleep(LONG_ENOUGH_SECONDS)
        assert (len(cloud.claims()), len(cloud.placeholders())) == (1, 1)
        cloud.report(name, "hgx-h100")
        eventually(partial(cluster.is_running, "fast"))
        eventually(lambda: not cloud.placeholders() and not cluster.api.list(JOBS))
        eventually(lambda: cluster.extender.metric('node_requests_total{outcome="served"}') == 1)


def test_karpenter_makes_no_node_for_a_pod_with_claims(cloud: Provisioning) -> None:
    """It refuses such pods unless its flag `--ignore-dra-requests` is false. So placeholders with claims do not help with it."""
    with cloud.at_work() as cluster:
        requests = [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}]
        cluster.api.post(CLAIMS, {"metadata": {"name": "one"}, "spec": {"devices": {"requests": requests}}})
        pod = wants("claims", 0)
        pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "one"}]
        cluster.submit(pod)
        eventually(lambda: any("not yet supported by Karpenter" in why for why in refusals(cluster, "claims")))
        assert cloud.claims() == []


def refusals(cluster: GpuCluster, pod: str) -> list[str]:
    events = cluster.events("FailedScheduling")
    return [event["message"] for event in events if event["involvedObject"]["name"] == pod]


def test_the_extender_may_make_jobs_there_and_nowhere_else(cloud: Provisioning) -> None:
    """By the chart's own rights."""

    def may(verb: str, resource: str, namespace: str) -> bool:
        group, _, name = resource.rpartition("/")
        attributes = {"verb": verb, "group": group, "resource": name, "namespace": namespace}
        review = {"spec": {"user": ACCOUNT, "resourceAttributes": attributes}}
        answer = cloud.plane.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    assert may("create", "batch/jobs", PLACEHOLDERS)
    assert may("delete", "batch/jobs", PLACEHOLDERS)
    assert not any(may("create", "batch/jobs", namespace) for namespace in ("default", "kube-system", NAMESPACE))
    assert not any(may(verb, "batch/jobs", PLACEHOLDERS) for verb in ("update", "patch", "deletecollection"))
    assert not may("create", "pods", PLACEHOLDERS)


def test_cleanup_removes_what_an_extender_has_left(cloud: Provisioning) -> None:
    """The Job, and with it the placeholder. The simulated kubelets go on writing to nodes, which it says, too."""
    with cloud.at_work(**ON) as cluster:
        cluster.join(*SCATTERED)
        cluster.submit(RING)
        eventually(cloud.placeholders)
        cluster.extender.kill()  # else it takes the placeholder back itself, if its node comes soon
    cleaned = invoke("cleanup", "--yes", "--kubeconfig", str(cloud.plane.kubeconfig()))
    assert [line.split()[:2] for line in cleaned.stdout.splitlines() if PLACEHOLDERS in line] == [
        ["placeholder", PLACEHOLDERS]
    ]
    eventually(lambda: not cloud.placeholders() and not cloud.plane.admin.list(JOBS), 30)


def test_placeholders_of_an_extender_that_died_end_by_themselves(cloud: Provisioning) -> None:
    """Kubernetes ends the Job and removes it."""
    with cloud.at_work(**ON, life="5s") as cluster:
        cluster.join(*SCATTERED)
        cluster.submit(RING)
        eventually(cloud.placeholders)
        cluster.extender.kill()
        eventually(lambda: not cloud.placeholders() and not cluster.api.list(JOBS), 30)
