"""What other health agents say of real Nodes: shown by extender and kubectl, and a reason to wait only where it is configured."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from extender.inspect.inspection import NodeDetail
from tests.cluster.gpu_cluster import GpuCluster, at_work, wants
from tests.cluster.installation import Installation
from tests.cluster.objects import NODES
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE

MACHINE = SimulatedNode("t4-a", "t4-4")
MISSING = {"type": "GPUMissing", "status": "True", "reason": "NvidiaGPUMissing", "message": "expected 4, found 3"}
LATE = {"type": "XIDErrors", "status": "True", "reason": "XIDErrorsPresent", "message": "XID 79"}
TAINT = {"key": "nvidia.com/gpu-xid-error", "value": "true", "effect": "PreferNoSchedule"}


@pytest.fixture
def cluster(installation: Installation, kubelets: None) -> Iterator[GpuCluster]:
    """Lend the installed control plane with an extender that closes nodes of which GPUs are missing."""
    try:
        with at_work(installation, {"nodeHealth": {"close": {"conditions": ["GPUMissing"]}}}) as lent:
            yield lent
    finally:
        sweep(installation.plane.admin, keep=[NAMESPACE])


def say(cluster: GpuCluster, *conditions: dict[str, str]) -> None:
    """Have other agents set conditions, beside the kubelet's."""
    cluster.api.patch(f"{NODES}/{MACHINE.name}/status", {"status": {"conditions": list(conditions)}}, "strategic")


def shown(cluster: GpuCluster) -> NodeDetail:
    """Return what the extender shows of the node."""
    _, text = cluster.extender.read(f"/v1/inspect/nodes/{MACHINE.name}")
    return NodeDetail.model_validate_json(text)


def test_only_a_word_that_is_to_close_a_node_keeps_pods_off_it(
    cluster: GpuCluster, figure: Callable[[str], None]
) -> None:
    """Others are shown; the pod's event has the reason, and it runs as soon as that is taken back."""
    cluster.join(MACHINE)
    cluster.api.patch(f"{NODES}/{MACHINE.name}", {"spec": {"taints": [TAINT]}}, "strategic")
    say(cluster, LATE)
    eventually(lambda: len(shown(cluster).signs) == 2)
    assert [sign.line for sign in shown(cluster).signs] == [
        "condition XIDErrors=True (AKS): XIDErrorsPresent: XID 79",
        "taint nvidia.com/gpu-xid-error=true:PreferNoSchedule (NVSentinel)",
    ]
    cluster.submit(wants("before", 1))
    eventually(lambda: cluster.is_running("before"))

    say(cluster, MISSING)
    eventually(lambda: shown(cluster).closed == "closed by condition GPUMissing=True")
    assert shown(cluster).signs[0].line.endswith("(AKS): NvidiaGPUMissing: expected 4, found 3")
    cluster.submit(wants("after", 1))
    why = eventually(lambda: cluster.why_pending("after"))
    figure(f"kube-scheduler says: {why}")
    assert "1 closed by condition GPUMissing=True" in why
    assert cluster.is_running("before")

    say(cluster, {**MISSING, "status": "False"})
    eventually(lambda: cluster.is_running("after"))
