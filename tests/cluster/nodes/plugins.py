"""The device plugins that a node of the tests can have."""

from pathlib import Path

from tests.cluster.nodes.kubelet import DEVICE_PLUGINS
from tests.cluster.nodes.namespaces import NodeProcess
from tests.cluster.nodes.node import GpuNode
from tests.cluster.objects import GPU


def wilful(node: GpuNode, *, with_numa: bool = False, record: Path | None = None) -> NodeProcess:
    """Start a plugin that prefers GPUs at random, and return when the cluster sees the GPUs.

    Args:
        node: where it serves.
        with_numa: whether it tells the kubelet which NUMA nodes the GPUs are near.
        record: takes a line for each question that the kubelet asks.

    """
    gpus = node.machine.topology.gpus
    devices = [f"{gpu.uuid}:{gpu.numa_node}" if with_numa else gpu.uuid for gpu in gpus]
    environment = {"RECORD": str(record)} if record else {}
    process = node.run("wilful", node.parts.tools / "wilful", DEVICE_PLUGINS, GPU, *devices, **environment)
    node.wait_allocatable(len(gpus))
    return process


def nvidia(node: GpuNode, programs: Path, *, replicas: int = 1, **environment: str) -> NodeProcess:
    """Start NVIDIA's own device plugin, without a flag as its chart does, and return when the cluster sees all devices."""
    process = node.run("nvidia-device-plugin", programs / "nvidia-device-plugin", **environment)
    node.wait_allocatable(replicas * len(node.machine.uuids))
    return process
