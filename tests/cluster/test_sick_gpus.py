"""What people and pods hear of sick GPUs on the real API server, with the rights of the chart, and who is evicted there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agent.node.events import NodeEvent, NodeEvents
from agent.node.kube import KubernetesNode
from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.agent_pod import AGENT
from tests.cluster.gpu_cluster import GpuCluster, at_work, wants
from tests.cluster.installation import ACCOUNT, Installation
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import NODES
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

A, B = SimulatedNode("v100-a", "dgx-1v"), SimulatedNode("v100-b", "dgx-1v")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@contextmanager
def allowed_to_evict(installation: Installation) -> Iterator[None]:
    """Give the extender the right that `extender.evictFromSickGpus` gives it (`tests/manifests/test_chart.py`)."""
    admin, name = installation.plane.admin, {"name": "evicts"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **name}
    rules = [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ACCOUNT}]
    admin.post(f"{RBAC}/clusterroles", {"metadata": name, "rules": rules})
    admin.post(f"{RBAC}/clusterrolebindings", {"metadata": name, "roleRef": role, "subjects": subjects})
    try:
        yield
    finally:
        admin.delete(f"{RBAC}/clusterrolebindings/evicts")
        admin.delete(f"{RBAC}/clusterroles/evicts")


@pytest.fixture
def cluster(installation: Installation, kubelets: None) -> Iterator[GpuCluster]:
    """Lend the installed control plane with an extender that may evict."""
    try:
        with allowed_to_evict(installation), at_work(installation, {"sickGpus": {"evict": True}}) as lent:
            yield lent
    finally:
        sweep(installation.plane.admin, keep=[NAMESPACE])


def told(cluster: GpuCluster, reason: str) -> list[str]:
    """Return whom events of a reason are about."""
    return sorted(event["involvedObject"]["name"] for event in cluster.events(reason))


def run(cluster: GpuCluster, *pods: object) -> None:
    """Submit pods of four GPUs and wait until they run."""
    cluster.submit(*pods)  # type: ignore[arg-type]
    names = [pod["metadata"]["name"] for pod in pods]  # type: ignore[index]
    eventually(lambda: all(cluster.is_running(name) for name in names))


def fall_sick(cluster: GpuCluster, *names: str) -> None:
    """Let an agent say that the first GPU of each of these pods is sick."""
    for node in {cluster.node_of(name) for name in names}:
        assert node
        gpus = [cluster.placement(name).containers["main"][0] for name in names if cluster.node_of(name) == node]
        sick = [GpuStatus(gpu, False, ("xid 79, needs a reset",), sick_since=int(time.time())) for gpu in gpus]
        cluster.annotate(node, keys.STATUS, encode_status(NodeGpuStatus(9, tuple(sick))))


def test_who_asks_for_it_is_evicted_as_its_budget_allows(cluster: GpuCluster, figure: Callable[[str], None]) -> None:
    """Not before the budget does, and nobody else: one that does not ask goes on, and so does the rest of the group."""
    cluster.join(A, B)
    asks = wants("asks", 4, "evict-when-sick: true", "group: llama")
    asks["metadata"]["labels"] = {"app": "asks"}
    run(cluster, asks, wants("member", 8, "group: llama"), wants("stays", 4))
    selector = {"matchLabels": {"app": "asks"}}
    cluster.api.post(BUDGETS, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}})
    none = {"disruptionsAllowed": 0, "observedGeneration": 1, "currentHealthy": 0, "desiredHealthy": 1}
    cluster.api.patch(f"{BUDGETS}/b/status", {"status": {**none, "expectedPods": 1}})

    began = time.monotonic()
    fall_sick(cluster, "asks", "stays")
    eventually(lambda: told(cluster, "GPUSick") == ["asks", "stays"])
    figure(f"two pods heard of their sick GPUs after {time.monotonic() - began:.2f} s")
    eventually(lambda: told(cluster, "GroupMemberSick") == ["member"])
    [refused] = eventually(lambda: cluster.events("GPUPodNotEvicted"))
    assert "disruption budget" in refused["message"]
    assert cluster.is_running("asks")

    cluster.api.patch(f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 1}})
    eventually(lambda: told(cluster, "GPUPodEvicted") == ["asks"])
    assert cluster.extender.metric('evictions_total{answer="evicted"}') == 1
    assert [cluster.is_running(name) for name in ("member", "stays")] == [True, True]


def test_agents_words_stand_beside_their_node_and_are_counted(installation: Installation) -> None:
    """As `kubectl describe` shows them; the agent has no more rights than the chart gives it."""
    plane = installation.plane
    plane.admin.post(NODES, {"metadata": {"name": "n1"}})
    node = KubernetesNode("n1", plane.service_account_kubeconfig(NAMESPACE, AGENT), None, 5.0)
    node.read()
    results: list[str] = []
    events = NodeEvents("n1", node, counted=results.append)
    events.start()
    try:
        for _ in range(3):
            events.say(NodeEvent("GPUQuarantined", "GPU 3 (GPU-1a2b3c4d) takes no new pods: xid 79", "Warning"))
        eventually(lambda: results == ["posted"] * 3)
        described = kubectl(plane, "describe", "node", "n1")
        [line] = [line for line in described.splitlines() if "GPUQuarantined" in line]
        assert "(x3 over " in line
        assert "xid 79" in line
    finally:
        events.close()
        sweep(plane.admin, keep=[NAMESPACE])
