"""Koordinator's device share: a partition table on Hopper machines, else the deepest PCIe or NUMA scope that is large enough.

Source: koordinator-sh/koordinator, `pkg/scheduler/plugins/deviceshare` (behaviour, read and not copied). Table: aligned
sets of 1, 2, 4, 8 that touch no GPU in use. Of those it takes the one that leaves most whole: 10000 for each intact
8-set, 100 for a 4-set, 1 for a 2-set. Scopes: GPU, PCIe switch, NUMA node, node; of equals the one whose surroundings are
in use already, then the lowest GPUs. Nodes: resources only, least allocated or, if so set up, most allocated, equal ones
by lot.

Known deviations: the ring bandwidth of a partition is not requested. All partitions of the table have one score. So the
order in which the source visits score groups is moot.
"""

from __future__ import annotations

from random import Random

from benchmarks.placement.baselines.pair_scores import socket_groups, switch_groups
from benchmarks.placement.baselines.stock import least_allocated, most_allocated
from benchmarks.placement.cluster import Cluster
from benchmarks.placement.policy import NodeThenGpus
from topology.bandwidth.rings import members_of
from topology.node.model import NodeTopology

_HOPPER = ("H100", "H200", "H800", "H20")
_INTACT = ((8, 10_000), (4, 100), (2, 1))


def koordinator(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return Koordinator with its default node score."""
    return NodeThenGpus(cluster, random, least_allocated, koordinator_gpus)


def koordinator_most(cluster: Cluster, random: Random) -> NodeThenGpus:
    """Return Koordinator set up to fill nodes."""
    return NodeThenGpus(cluster, random, most_allocated, koordinator_gpus)


def koordinator_gpus(node: NodeTopology, free: int, gpus: int) -> tuple[int, ...]:
    """Return the GPUs that Koordinator takes of the free ones."""
    if len(node) == 8 and gpus in (1, 2, 4, 8) and any(word in node.gpus[0].model for word in _HOPPER):
        aligned = [mask for mask in _aligned(gpus) if mask & ~free == 0]
        if aligned:
            return members_of(max(aligned, key=lambda mask: _left_whole(free & ~mask)))
    return _by_scope(node, free, gpus)


def _aligned(gpus: int) -> list[int]:
    return [((1 << gpus) - 1) << first for first in range(0, 8, gpus)]


def _left_whole(free: int) -> int:
    return sum(worth for size, worth in _INTACT for mask in _aligned(size) if mask & ~free == 0)


def _by_scope(node: NodeTopology, free: int, gpus: int) -> tuple[int, ...]:
    span = tuple(range(len(node)))
    levels: list[list[tuple[int, ...]]] = [[(i,) for i in span], switch_groups(node), socket_groups(node), [span]]
    for depth, scopes in enumerate(levels):
        fitting = [scope for scope in scopes if sum(free >> i & 1 for i in scope) >= gpus]
        if fitting:
            around = [_around(scope, levels[depth + 1 :], free) for scope in fitting]
            best = fitting[around.index(max(around))]
            return tuple(i for i in best if free >> i & 1)[:gpus]
    return ()


def _around(scope: tuple[int, ...], wider: list[list[tuple[int, ...]]], free: int) -> tuple[bool, ...]:
    """Say for each wider scope around this one, nearest first, whether a GPU of it is in use."""
    found = (next(wide for wide in level if scope[0] in wide) for level in wider)
    return tuple(any(not free >> i & 1 for i in wide) for wide in found)
