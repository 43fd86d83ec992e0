"""HiveD: buddy cells, gangs placed in one walk over the nodes, GPUs of a node by the lowest common cell.

Source: microsoft/hivedscheduler (MIT), `pkg/algorithm/topology_aware_scheduler.go` (behaviour, read and not copied). One
virtual cluster owns everything, as for a cluster without tenants. Nodes with more GPUs in use come first, stable. The
pods of a gang go by size, smallest first, with one pointer over the nodes that never goes back. In the node it takes the
set with the lowest common level (GPU, PCIe switch, socket, node), found in index order. It stops at the first set of the
smallest level that can hold so many. Hosts are listed rack by rack. An administrator writes the cells by hand. With
`pairs_by_link` pairs on the widest NVLinks stand in the place of PCIe switches, where the machine divides into such
pairs. Otherwise links are not levels.

Known deviations: machines of different kinds are separate chains, tried in the order of their names; there are no
priorities, no bad nodes. Shares, which it does not know, take the fullest GPU of a node that has a whole one free as well.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from random import Random

from benchmarks.placement.baselines.pair_scores import linked_pairs, socket_groups, switch_groups
from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import Placed, fullest_gpus
from topology.bandwidth.rings import members_of
from topology.node.model import NodeTopology


class Hived:
    """Intra-virtual-cluster placement with one virtual cluster."""

    def __init__(self, cluster: Cluster, random: Random, *, pairs_by_link: bool = False) -> None:
        self._pairs_by_link = pairs_by_link
        chains: dict[tuple[str, int], list[ServerState]] = {}
        for node in cluster.nodes:
            chains.setdefault((node.server.model, len(node.server.topology)), []).append(node)
        # In the order of the cell tree, so that hosts of one rack stand together.
        self._chains = [sorted(chains[name], key=lambda node: node.server.leaf) for name in sorted(chains)]

    def place(self, job: Job) -> Placed | None:
        """Return the gang's place in the first chain that holds it."""
        for chain in self._chains:
            placed = self._walk(chain, job)
            if placed is not None:
                return placed
        return None

    def ended(self, job: Job) -> None:
        """Cells are read off the cluster."""

    def _walk(self, chain: list[ServerState], job: Job) -> Placed | None:
        nodes = iter(sorted(chain, key=lambda node: node.free.bit_count() - len(node.gpu_milli)))
        node = next(nodes, None)
        picked = _Picked()
        placed: dict[int, Allotment] = {}
        for number in sorted(range(len(job.pods)), key=lambda number: job.pods[number].gpus):
            pod = job.pods[number]
            while node is not None and not picked.suffices(node, pod.gpus, pod.cpu_milli, pod.memory_mib, pod.models):
                node, picked = next(nodes, None), _Picked()
            if node is None:
                return None
            if pod.shares:
                gpus = fullest_gpus(node, pod)
                if not gpus:
                    return None
            else:
                gpus = lowest_cell(
                    node.server.topology, node.free & ~picked.gpus, pod.gpus, pairs_by_link=self._pairs_by_link
                )
            picked = picked.plus(gpus, pod.cpu_milli, pod.memory_mib)
            placed[number] = Allotment(node.index, gpus, pod)
        return tuple(placed[number] for number in range(len(job.pods)))


class _Picked:
    """What the gang has taken of the node at the pointer."""

    def __init__(self, gpus: int = 0, cpu_milli: int = 0, memory_mib: int = 0) -> None:
        self.gpus = gpus
        self.cpu_milli = cpu_milli
        self.memory_mib = memory_mib

    def suffices(self, node: ServerState, gpus: int, cpu_milli: int, memory_mib: int, models: tuple[str, ...]) -> bool:
        return (
            (node.free & ~self.gpus).bit_count() >= gpus
            and node.cpu_milli - self.cpu_milli >= cpu_milli
            and node.memory_mib - self.memory_mib >= memory_mib
            and (not models or node.server.model in models)
        )

    def plus(self, gpus: tuple[int, ...], cpu_milli: int, memory_mib: int) -> _Picked:
        taken = sum(1 << position for position in gpus)
        return _Picked(self.gpus | taken, self.cpu_milli + cpu_milli, self.memory_mib + memory_mib)


@cache
def lowest_cell(node: NodeTopology, free: int, gpus: int, *, pairs_by_link: bool = False) -> tuple[int, ...]:
    """Return the free GPUs with the lowest common cell, the first such set in index order."""
    if not gpus:
        return ()
    levels: list[list[tuple[int, ...]]] = [
        [(i,) for i in range(len(node))],
        (pairs_by_link and linked_pairs(node)) or switch_groups(node),
        socket_groups(node),
    ]

    def level(chosen: tuple[int, ...]) -> int:
        return next(
            (depth for depth, cells in enumerate(levels) if any(set(chosen) <= set(cell) for cell in cells)),
            len(levels),
        )

    return min(combinations(members_of(free), gpus), key=level)
