"""What `kubectl gputopo cleanup` does with placeholders."""

from __future__ import annotations

from pathlib import Path

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import gpu_pod
from extender.features.autoscaling.job import LABELS
from extender.kubectl import cleanup
from extender.kubernetes.kubeconfig import Kubeconfig
from tests.extender.plugin import PODS
from topology.annotations import keys


async def test_placeholders_are_ours_and_what_others_call_so_is_theirs(tmp_path: Path) -> None:
    """`tests/cluster/karpenter` sees their Jobs go; nobody's pod is deleted for an annotation."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        for name, labels in (("ours", LABELS), ("theirs", {})):
            document = gpu_pod(name, 5, {keys.PLACEHOLDER_FOR: "default/train/u1"})
            document["metadata"]["labels"] = labels
            (await api.call("POST", PODS, document)).ok()
        [leftover] = (await cleanup.find(Kubeconfig.find(tmp_path / "kubeconfig", None, {}))).leftovers
    assert (leftover.kind, leftover.name, leftover.keys) == ("placeholder", "ours", (keys.PLACEHOLDER_FOR,))
    [removal] = leftover.removals
    assert removal.path == "/apis/batch/v1/namespaces/default/jobs/gputopo-u1?propagationPolicy=Background"
