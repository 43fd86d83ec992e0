"""HAMi with its topology-aware GPU choice: node by how full it is, GPUs by the sum of go-gpuallocator's pair scores.

Source: Project-HAMi/HAMi, `pkg/scheduler/policy` and `pkg/device/nvidia` (behaviour, read and not copied). Node: 10 ×
(slots in use + cores in use + memory in use, each over the whole) before the pod; bin packing, the default, takes the
highest. GPUs are visited from the highest index down among those equally used. One GPU is the one with the least pair
score to the others, else the set with the highest sum counts. The first of equals wins; links to an NVSwitch count 100
each.

Known deviations: equal nodes fall by lot, where HAMi's sort is unstable. Quotas and health are left out. A share takes
the least used GPU, HAMi's default, without its pair scores.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from random import Random

from benchmarks.placement.baselines.pair_scores import pair_scores, total
from benchmarks.placement.cluster import Cluster, ServerState
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policy import NodeThenGpus, emptiest_gpus
from topology.bandwidth.rings import members_of
from topology.node.model import NodeTopology
from topology.value.fragmentation import WHOLE_GPU_MILLI

SLOTS_PER_GPU = 10


def hami_binpack(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return HAMi as it comes."""
    return NodeThenGpus(cluster, random, fullness, hami_gpus, emptiest_gpus)


def hami_spread(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return HAMi with its node policy `spread`."""
    return NodeThenGpus(cluster, random, lambda node, pod: -fullness(node, pod), hami_gpus, emptiest_gpus)


def fullness(node: ServerState, pod: PodSize) -> float:
    """Return HAMi's score of a node, before the pod; cores and memory of a GPU are taken in step."""
    gpus = len(node.server.topology)
    slots = sum(len(allotment.gpus) for allotment in node.allotments)
    used = gpus - sum(node.gpu_milli) / WHOLE_GPU_MILLI
    return 10 * (slots / (SLOTS_PER_GPU * gpus) + used / gpus + used / gpus)


def hami_gpus(node: NodeTopology, free: int, gpus: int) -> tuple[int, ...]:
    """Return the GPUs that HAMi takes of the free ones, in the order in which it visits them."""
    visited = members_of(free)[::-1]
    scores = _scores(node)
    if gpus == 1:
        return (min(visited, key=lambda i: sum(scores[i][j] for j in visited)),)
    if len(visited) == gpus:
        return visited
    return max(combinations(visited, gpus), key=lambda chosen: total(scores, chosen))


@lru_cache(maxsize=4096)
def _scores(node: NodeTopology) -> tuple[tuple[int, ...], ...]:
    switch = [gpu.switch_links for gpu in node.gpus]
    return tuple(
        tuple(score + 100 * min(switch[i], switch[j]) if i != j else 0 for j, score in enumerate(row))
        for i, row in enumerate(pair_scores(node))
    )
