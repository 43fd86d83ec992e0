"""gpushare-scheduler-extender: it filters and binds; the node is the scheduler's own choice, the GPU the fullest with room.

Source: AliyunContainerService/gpushare-scheduler-extender, `pkg/cache/nodeinfo.go` (behaviour, read and not copied): the
GPU with the smallest free memory that is enough, the lowest of equals. It answers no `prioritize`, so the default
scheduler's scores stand, equal ones by lot.

It imposes one GPU on a pod, by its own device plugin. Known deviation: pods of several GPUs, which it does not serve, get
what NVIDIA's plugin hands out.
"""

from __future__ import annotations

from random import Random

from benchmarks.placement.baselines.stock import least_allocated
from benchmarks.placement.cluster import Cluster, ServerState
from benchmarks.placement.device_plugin import NvidiaPlugin
from benchmarks.placement.policy import NodeThenPlugin
from topology.placement.nvidia_best_effort import Outcome


class _OneGpu(NodeThenPlugin):
    """The lowest free GPU for a pod of one."""

    def whole_gpus(self, node: ServerState, gpus: int) -> tuple[int, ...]:
        """Return the lowest, or what the plugin hands out."""
        return node.free_positions[:1] if gpus == 1 else super().whole_gpus(node, gpus)

    def chances(self, node: ServerState, gpus: int) -> tuple[Outcome, ...]:
        """Return the lowest for certain, or what the plugin may hand out."""
        return (Outcome(node.free & -node.free, 1.0),) if gpus == 1 else super().chances(node, gpus)


def gpushare(cluster: Cluster, random: Random) -> NodeThenPlugin:
    """Return gpushare behind a default scheduler."""
    return _OneGpu(cluster, random, least_allocated, NvidiaPlugin(random))
