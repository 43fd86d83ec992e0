"""Stock Kubernetes: kube-scheduler's resource scores choose the node, the device plugin the GPUs.

Source: kubernetes/kubernetes `pkg/scheduler/framework/plugins/noderesources`. The default is LeastAllocated over CPU and
memory with BalancedAllocation. Bin packing of GPUs is MostAllocated over `nvidia.com/gpu`. Scores are whole, 0..100 per
plugin, equal sums by lot. In the node: `benchmarks.placement.device_plugin`.

Known deviation: the plugins that have nothing to say here (images, spreading, affinity) are left out.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

from benchmarks.placement.cluster import Cluster, ServerState
from benchmarks.placement.device_plugin import NvidiaPlugin, PlainPlugin
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policy import NodeThenPlugin
from topology.value.fragmentation import WHOLE_GPU_MILLI

MAX_NODE_SCORE = 100


def least_allocated(node: ServerState, pod: PodSize) -> float:
    """Return the default scores of a node: emptier, and CPU in balance with memory."""
    cpu, memory = _used_after(node, pod)
    if not node.server.cpu_milli and not node.server.memory_mib:
        return float(node.free_gpus * MAX_NODE_SCORE // max(1, len(node.server.topology)))
    return _empty_and_balanced((node.server.cpu_milli, cpu), (node.server.memory_mib, memory))


@lru_cache(maxsize=1 << 16)
def _empty_and_balanced(*resources: tuple[int, int]) -> float:
    """Return both scores together of resources, each with what there is and what is used of it."""
    shares = [(capacity, used) for capacity, used in resources if capacity]
    empty = sum((capacity - used) * MAX_NODE_SCORE // capacity for capacity, used in shares) // len(shares)
    fractions = [used / capacity for capacity, used in shares]
    # BalancedAllocation: one minus the standard deviation; of two fractions that is half their distance.
    spread = abs(fractions[0] - fractions[-1]) / 2
    return float(empty + int((1 - spread) * MAX_NODE_SCORE))


def most_allocated(node: ServerState, pod: PodSize) -> float:
    """Return how full the node's GPUs would be, for pods with GPUs; CPU and memory for others."""
    if pod.gpus:
        capacity = len(node.server.topology)
        used = capacity - sum(node.gpu_milli) / WHOLE_GPU_MILLI + pod.gpus * pod.gpu_milli / WHOLE_GPU_MILLI
        return float(int(used * MAX_NODE_SCORE / capacity))
    cpu, memory = _used_after(node, pod)
    shares = [(node.server.cpu_milli, cpu), (node.server.memory_mib, memory)]
    return float(sum(used * MAX_NODE_SCORE // capacity for capacity, used in shares if capacity))


def stock_least(cluster: Cluster, random: Random) -> NodeThenPlugin:
    """Return the default scheduler and NVIDIA's plugin."""
    return NodeThenPlugin(cluster, random, least_allocated, NvidiaPlugin(random))


def stock_most(cluster: Cluster, random: Random) -> NodeThenPlugin:
    """Return the scheduler set up to fill nodes, and NVIDIA's plugin."""
    return NodeThenPlugin(cluster, random, most_allocated, NvidiaPlugin(random))


def stock_least_plain(cluster: Cluster, random: Random) -> NodeThenPlugin:
    """Return the default scheduler, and a device plugin that states no preference."""
    return NodeThenPlugin(cluster, random, least_allocated, PlainPlugin(random))


def stock_most_plain(cluster: Cluster, random: Random) -> NodeThenPlugin:
    """Return the scheduler set up to fill nodes, and a device plugin that states no preference."""
    return NodeThenPlugin(cluster, random, most_allocated, PlainPlugin(random))


def cpu_and_memory(node: ServerState, pod: PodSize) -> float:
    """Return the default scores of a node for a pod with ResourceClaims, of which none counts devices."""
    if not node.server.cpu_milli and not node.server.memory_mib:
        return 0.0
    return least_allocated(node, pod)


def _used_after(node: ServerState, pod: PodSize) -> tuple[int, int]:
    server = node.server
    return (
        server.cpu_milli - node.cpu_milli + pod.cpu_milli,
        server.memory_mib - node.memory_mib + pod.memory_mib,
    )
