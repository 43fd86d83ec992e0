"""Pods that reach a node around us: nothing is promised of its wiring until its agent says which GPUs they hold."""

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.gpu_cluster import GpuCluster, uuids, wants
from tests.cluster.polling import eventually

NODE = SimulatedNode("v100", "dgx-1v")


def test_no_ring_is_promised_until_the_stranger_s_gpus_are_known(gpu_cluster: GpuCluster) -> None:
    """The waiting pod is told why, and then gets GPUs that the stranger does not hold."""
    gpu_cluster.join(NODE)
    gpu_cluster.bind_around_us("stranger", 4, NODE.name)
    heard = f'"node":"{NODE.name}"'
    eventually(lambda: heard in gpu_cluster.extender.read("/v1/inspect/pods/default/stranger")[1])
    gpu_cluster.submit(wants("ours", 4, "required-affinity: nvlink"))
    why = eventually(lambda: gpu_cluster.why_pending("ours"))
    assert "1 pods without a placement record hold unknown GPUs" in why
    gpu_cluster.report(NODE.name, 2, stranger=uuids(NODE, range(4)))
    assert eventually(lambda: gpu_cluster.node_of("ours")) == NODE.name
    assert set(gpu_cluster.placement("ours").containers["main"]) == uuids(NODE, range(4, 8))
