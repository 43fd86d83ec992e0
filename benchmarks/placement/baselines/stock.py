"""Stock Kubernetes: kube-scheduler's resource scores choose the node, NVIDIA's device plugin the GPUs.

Source: kubernetes/kubernetes `pkg/scheduler/framework/plugins/noderesources` (LeastAllocated over CPU and memory beside
BalancedAllocation, the default; MostAllocated over `nvidia.com/gpu`, as bin packing is set up for GPUs), whole scores 0..100
per plugin, equal sums by lot. In the node: `topology.placement.nvidia_best_effort`.

Known deviations: the plugins that have nothing to say here (images, spreading, affinity) are left out; the GPUs come to the
device plugin by index, its best case, where the kubelet hands them over in random order.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

from benchmarks.placement.cluster import Cluster, Node
from benchmarks.placement.jobs import Pod
from benchmarks.placement.policy import NodeThenGpus
from topology.bandwidth.rings import members_of
from topology.node.model import NodeTopology
from topology.placement.nvidia_best_effort import best_effort
from topology.value.fragmentation import WHOLE_GPU_MILLI

MAX_NODE_SCORE = 100


def least_allocated(node: Node, pod: Pod) -> float:
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


def most_allocated(node: Node, pod: Pod) -> float:
    """Return how full the node's GPUs would be, for pods with GPUs; CPU and memory for others."""
    if pod.gpus:
        capacity = len(node.server.topology)
        used = capacity - sum(node.gpu_milli) / WHOLE_GPU_MILLI + pod.gpus * pod.gpu_milli / WHOLE_GPU_MILLI
        return float(int(used * MAX_NODE_SCORE / capacity))
    cpu, memory = _used_after(node, pod)
    shares = [(node.server.cpu_milli, cpu), (node.server.memory_mib, memory)]
    return float(sum(used * MAX_NODE_SCORE // capacity for capacity, used in shares if capacity))


def nvidia(node: NodeTopology, free: int, gpus: int) -> tuple[int, ...]:
    """Return what NVIDIA's plugin would hand out of the free GPUs."""
    return best_effort(node, members_of(free), gpus)


def lowest(node: NodeTopology, free: int, gpus: int) -> tuple[int, ...]:
    """Return the lowest free positions, as a device plugin without any preference may."""
    return members_of(free)[:gpus]


def stock_least(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return the default scheduler and NVIDIA's plugin."""
    return NodeThenGpus(cluster, random, least_allocated, nvidia)


def stock_most(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return the scheduler set up to fill nodes, and NVIDIA's plugin."""
    return NodeThenGpus(cluster, random, most_allocated, nvidia)


def stock_least_lowest(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return the default scheduler, and GPUs by index."""
    return NodeThenGpus(cluster, random, least_allocated, lowest)


def stock_most_lowest(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return the scheduler set up to fill nodes, and GPUs by index."""
    return NodeThenGpus(cluster, random, most_allocated, lowest)


def _used_after(node: Node, pod: Pod) -> tuple[int, int]:
    server = node.server
    return (
        server.cpu_milli - node.cpu_milli + pod.cpu_milli,
        server.memory_mib - node.memory_mib + pod.memory_mib,
    )
