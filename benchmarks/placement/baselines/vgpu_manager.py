"""vgpu-manager in link mode: nodes by the best link tier that is installed, GPUs from one group of linked free ones.

Source: coldzerofear/vgpu-manager, filter predicate and allocator (behaviour, read and not copied). The node tier follows
from what is installed and not from what is free. It is 5 if some NVLink component, over NVSwitches too, has as many GPUs
as requested. It is 4 over PCIe switches, 3 within a socket, 2 any. Then comes the fuller node, then the name. GPUs come
from the first tier with a group of free GPUs large enough, of its groups from the best link sum. In it the set with the
highest sum of pair scores wins, of equals the one that leaves the better set behind. A single GPU is the one with the
least pair score to its group.

Known deviations: all free GPUs count as equally used, which whole GPUs are. A set across groups is the best by pair
scores instead of a walk over groups by size.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from random import Random

from benchmarks.placement.baselines.pair_scores import groups, pair_scores, total
from benchmarks.placement.cluster import Cluster, ServerState
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policy import NodeThenGpus
from topology.bandwidth.rings import members_of
from topology.node.links import PciePath
from topology.node.model import NodeTopology

TIERS = (5, 4, 3, 2)
"""NVLink, PCIe switches, socket, any."""
_FARTHEST = {5: -1, 4: PciePath.PXB, 3: PciePath.NODE, 2: PciePath.SYS}


def vgpu_manager(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return vgpu-manager, link mode, nodes packed."""
    tiers: dict[tuple[int, int], int] = {}

    def score(node: ServerState, pod: PodSize) -> float:
        """Return tier, then fullness after the pod, then the name, in one number."""
        key = node.kind, pod.gpus
        if key not in tiers:
            tiers[key] = tier(node.server.topology, pod.gpus)
        gpus = len(node.gpu_milli)
        fullness = (gpus - node.free.bit_count() + pod.gpus) / gpus
        return tiers[key] * 4 + fullness - node.index * 1e-9

    return NodeThenGpus(cluster, random, score, link_gpus)


def tier(node: NodeTopology, gpus: int) -> int:
    """Return the nearest tier at which enough GPUs are installed; 1 when there are too few."""
    everything = (1 << len(node)) - 1
    return next((tier for tier in TIERS if any(len(found) >= gpus for found in _linked(node, everything, tier))), 1)


def link_gpus(node: NodeTopology, free: int, gpus: int) -> tuple[int, ...]:
    """Return the GPUs that the allocator takes of the free ones."""
    scores = pair_scores(node)
    for at in TIERS:
        found = [group for group in _linked(node, free, at) if len(group) >= gpus]
        if gpus == 1:
            with_peer = {i for group in _linked(node, (1 << len(node)) - 1, at) if len(group) > 1 for i in group}
            found = [kept for group in found if (kept := tuple(i for i in group if i in with_peer))]
        if found:
            best = [_best_of(scores, group, gpus) for group in found]
            return max(best, key=lambda chosen: total(scores, chosen))
    return _best_of(scores, members_of(free), gpus)


@lru_cache(maxsize=1 << 14)
def _linked(node: NodeTopology, members: int, at: int) -> list[tuple[int, ...]]:
    """Return the groups that hang together over links of this tier or nearer."""
    farthest = _FARTHEST[at]
    return groups(
        members_of(members),
        lambda i, j: node.nvlinks(i, j) > 0 or (farthest >= 0 and node.path(i, j) <= farthest),
    )


def _best_of(scores: tuple[tuple[int, ...], ...], group: tuple[int, ...], gpus: int) -> tuple[int, ...]:
    if gpus == 1:
        return (min(group, key=lambda i: sum(scores[i][j] for j in group)),)
    return max(
        combinations(group, gpus),
        key=lambda chosen: (total(scores, chosen), _greedy(scores, [i for i in group if i not in chosen], gpus)),
    )


def _greedy(scores: tuple[tuple[int, ...], ...], left: list[int], gpus: int) -> int:
    """Return the sum of a set that grows by the GPU with the highest scores to those taken."""
    if len(left) < gpus:
        return 0
    taken = left[:1]
    for _ in range(gpus - 1):
        taken.append(max((i for i in left if i not in taken), key=lambda i: sum(scores[i][j] for j in taken)))
    return total(scores, taken)
