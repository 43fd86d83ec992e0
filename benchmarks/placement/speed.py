"""From bandwidth to run time: a step computes, then its ring moves gradients at the bus bandwidth of the GPUs it got.

step = compute × (1 + traffic / bandwidth), where `traffic` is what the application sends for each second of computing, in
GB/s. That is the model of Pollux (OSDI'21) without overlap, and with the link as the only thing that differs between
placements. An application's traffic follows from any two measured placements. Reported at three sensitivities: none,
measured, and all as the most talkative.

Bandwidth is the product's prediction, the same for all policies. A policy that ignores it is not judged by its own scorer
but by this one. So read results together with the counts (cliques, losses) that no model touches.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from math import inf

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import Placed
from topology.node.model import NodeTopology
from topology.placement.topology_class import TopologyClass


class Sensitivity(StrEnum):
    """How much applications communicate."""

    NONE = "none"
    MEASURED = "measured"
    ALL = "all"


def traffic_from(slow_down: float, near_gb_per_s: float, far_gb_per_s: float) -> float:
    """Return the traffic at which the far placement is this much slower than the near one; 0 where it is not slower.

    More than `near / far` no traffic explains; then it is taken for one that does nothing but communicate 50 times as long.

    >>> round(traffic_from(1.25, 36.0, 12.0), 2), traffic_from(0.9, 36.0, 12.0)
    (5.14, 0.0)
    """
    if slow_down <= 1:
        return 0.0
    denominator = 1 / far_gb_per_s - slow_down / near_gb_per_s
    most = 50 * near_gb_per_s
    return min((slow_down - 1) / denominator, most) if denominator > 0 else most


class SpeedModel:
    """Run times on one cluster; `network_gb_per_s` is what one node's NICs carry together."""

    def __init__(self, cluster: Cluster, network_gb_per_s: float = inf) -> None:
        topologies = {node.kind: node.server.topology for node in cluster.nodes}
        measures = {kind: measure_of(topology) for kind, topology in topologies.items()}
        self._classes = [measures[node.kind] for node in cluster.nodes]
        self._network_gb_per_s = network_gb_per_s
        self._best: dict[tuple[int, ...], float] = {}

    def bandwidth(self, placed: Placed) -> float:
        """Return the bus bandwidth of a job's ring in GB/s, infinite for one GPU.

        Across nodes each node's NICs are shared out by GPUs, and the narrowest part of the ring decides.
        """
        parts = {node: sum(found.mask for found in placed if found.node == node) for node in {a.node for a in placed}}
        inside = min((self._inside(node, mask) for node, mask in parts.items()), default=inf)
        if len(parts) == 1:
            return inside
        shares = (mask.bit_count() / len(self._classes[node].node) for node, mask in parts.items())
        return min(inside, self._network_gb_per_s * min(shares))

    def best_bandwidth(self, job: Job) -> float:
        """Return the bus bandwidth of the best place for the job in the empty cluster."""
        key = tuple(pod.gpus for pod in job.pods)
        if key not in self._best:
            self._best[key] = max(self._best_on(found, key) for found in dict.fromkeys(self._classes))
        return self._best[key]

    def best_on_node_of(self, placed: Placed) -> float:
        """Return the bus bandwidth of the best set of as many GPUs on the empty node; of pods on one node only."""
        (node,) = {allotment.node for allotment in placed}
        return _best_inside(self._classes[node], sum(allotment.mask.bit_count() for allotment in placed))

    def run_time(self, job: Job, placed: Placed) -> float:
        """Return the seconds that the job takes; `service_s` at its best bandwidth."""
        if not job.traffic_gb_per_s:
            return job.service_s
        return job.service_s * self.slow_down(job, placed)

    def slow_down(self, job: Job, placed: Placed) -> float:
        """Return the run time over that of the best place in the empty cluster."""
        traffic = job.traffic_gb_per_s
        return (1 + traffic / self.bandwidth(placed)) / (1 + traffic / self.best_bandwidth(job))

    def _inside(self, node: int, mask: int) -> float:
        return self._classes[node].predict(mask)[0].point if mask.bit_count() > 1 else inf

    def _best_on(self, found: TopologyClass, pods: tuple[int, ...]) -> float:
        size, together = len(found.node), sum(pods)
        if together <= size:
            return _best_inside(found, together)
        if max(pods) > size:
            return 0.0
        inside = _best_inside(found, max(pods))
        return min(inside, self._network_gb_per_s * min(pods) / size)


@cache
def _best_inside(found: TopologyClass, gpus: int) -> float:
    if gpus < 2:
        return inf
    whole = (1 << len(found.node)) - 1
    return max(found.predict(mask)[0].point for mask in found.subsets(whole, gpus))


@cache
def measure_of(node: NodeTopology) -> TopologyClass:
    """Return predictions, kept from run to run; they serve as a measure only, whoever chose the GPUs."""
    return TopologyClass(node)
