"""gpushare-scheduler-extender: it filters and binds; the node is the scheduler's own choice, the GPU the fullest with room.

Source: AliyunContainerService/gpushare-scheduler-extender, `pkg/cache/nodeinfo.go` (behaviour, read and not copied): the
GPU with the smallest free memory that is enough, the lowest of equals. It answers no `prioritize`, so the default
scheduler's scores stand, equal ones by lot.

Known deviation: it gives a pod one GPU; for more, the lowest wholly free ones are taken here.
"""

from __future__ import annotations

from random import Random

from benchmarks.placement.baselines.stock import least_allocated, lowest
from benchmarks.placement.cluster import Cluster
from benchmarks.placement.policy import NodeThenGpus


def gpushare(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return gpushare behind a default scheduler."""
    return NodeThenGpus(cluster, random, least_allocated, lowest)
