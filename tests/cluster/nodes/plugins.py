"""The device plugins that a node of the tests can have."""

from tests.cluster.nodes.kubelet import ROOT
from tests.cluster.nodes.namespaces import NodeProcess
from tests.cluster.nodes.node import GpuNode
from tests.cluster.objects import GPU

FOLDER = f"{ROOT}/device-plugins"


def wilful(node: GpuNode, *, with_numa: bool = False) -> NodeProcess:
    """Start a plugin that prefers GPUs at random, and return when the cluster sees the GPUs."""
    gpus = node.machine.topology.gpus
    devices = [f"{gpu.uuid}:{gpu.numa_node}" if with_numa else gpu.uuid for gpu in gpus]
    process = node.run("wilful", node.parts.tools / "wilful", FOLDER, GPU, *devices)
    node.wait_allocatable(len(gpus))
    return process
