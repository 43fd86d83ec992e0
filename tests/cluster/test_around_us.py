"""Pods that reach a node around us: nothing is promised of its wiring until its agent says which GPUs they hold."""

from benchmarks.fleet import SimulatedNode, gpu_pod
from tests.cluster.gpu_cluster import GpuCluster, uuids, wants
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from topology import keys
from topology.records import Holder, Observed, encode_observed

NODE = SimulatedNode("v100", "dgx-1v")


def bind_around_us(cluster: GpuCluster, name: str, gpus: int) -> None:
    """Do what a scheduler without an extender does."""
    cluster.api.post(PODS, gpu_pod(name, gpus, schedulerName="somebody-else"))
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE.name}}
    cluster.api.post(f"{PODS}/{name}/binding", binding)


def report(cluster: GpuCluster, name: str, gpus: set[str]) -> None:
    """Let the node's agent say that a pod holds these GPUs."""
    observed = encode_observed(Observed(dict.fromkeys(gpus, Holder("default", name, "main"))))
    cluster.api.patch(f"{NODES}/{NODE.name}", {"metadata": {"annotations": {keys.OBSERVED: observed}}})


def test_no_ring_is_promised_until_the_stranger_s_gpus_are_known(gpu_cluster: GpuCluster) -> None:
    """The waiting pod is told why, and then gets GPUs that the stranger does not hold."""
    gpu_cluster.join(NODE)
    bind_around_us(gpu_cluster, "stranger", 4)
    gpu_cluster.submit(wants("ours", 4, "required-affinity: nvlink"))
    why = eventually(lambda: gpu_cluster.why_pending("ours"))
    assert "1 pods without a placement record hold unknown GPUs" in why
    report(gpu_cluster, "stranger", uuids(NODE, range(4)))
    assert eventually(lambda: gpu_cluster.node_of("ours")) == NODE.name
    assert set(gpu_cluster.placement("ours").containers["main"]) == uuids(NODE, range(4, 8))
