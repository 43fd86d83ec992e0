"""Which GPUs the kubelet's topology manager would let a pod have, and whether it would admit the pod at all.

Each kind of resource names the sets of NUMA nodes that could serve a container (hints). It prefers those of the smallest size
with which an idle machine could. The manager settles on one set for all kinds, and only GPUs of that set are handed out. These
are the rules of Kubernetes 1.36: `pkg/kubelet/cm/topologymanager/policy*.go`, `devicemanager/topology_hints.go` and
`cpumanager/policy_static.go`. Memory and other devices have a say there too, and are not modelled.

Sets of NUMA nodes are bit masks, over those that have GPUs or CPUs, in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from topology.bandwidth.rings import members_of
from topology.effort import Search, finish
from topology.node.alignment import NumaCpus, Policy, Scope, TopologyManager
from topology.placement.plan import Parts
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import ASK_WHO, Reason, Rejection
from topology.request.gpu_request import ContainerGpus, widest

MAX_NUMA_NODES = 8
"""More than that the kubelet does not align by default (`max-allowable-numa-nodes`)."""
TOO_MANY_NUMA_NODES = Rejection(
    Reason.KUBELET,
    f"the kubelet aligns by NUMA nodes, and more than {MAX_NUMA_NODES} have GPUs or CPUs",
    remedy="set topologyManagerPolicy to none",
)
SPREAD = Rejection(
    Reason.KUBELET,
    "a container before the last has GPUs of several NUMA nodes, and the kubelet aligns each for itself",
    remedy="set topologyManagerScope to pod, or ask for the GPUs in one container",
)
NOT_YET = Rejection(
    Reason.KUBELET,
    "from which NUMA node the kubelet takes GPUs depends on pods that it has yet to admit",
    remedy=ASK_WHO,
)


def align(
    topology_class: TopologyClass,
    manager: TopologyManager,
    free: int,
    perhaps: int,
    containers: tuple[ContainerGpus, ...],
) -> Parts | Rejection:
    """Return from which GPUs the pod gets how many, or why the kubelet would not admit it, or that nobody can know; remembered.

    Args:
        topology_class: The GPUs.
        manager: The kubelet's.
        free: GPUs that the pod may get, and that are free to the kubelet as well; not fewer than it asks for.
        perhaps: GPUs that the pod must not get, and that the kubelet may take for free all the same. Only an answer that is
            the same with and without them is one.
        containers: What each asks for, in the order in which they start.

    """
    return finish(topology_class.searched(_align, manager, free, perhaps & ~free, containers))


def _align(
    topology_class: TopologyClass,
    manager: TopologyManager,
    free: int,
    perhaps: int,
    containers: tuple[ContainerGpus, ...],
) -> Search[Parts | Rejection]:
    yield from ()
    machine = _Machine(topology_class, manager)
    if not any(machine.gpus):
        return ()
    if len(machine.gpus) > MAX_NUMA_NODES:
        return () if manager.policy is Policy.BEST_EFFORT else TOO_MANY_NUMA_NODES
    asking = containers if manager.scope is Scope.CONTAINER else (_as_one(containers),)
    found = machine.admit(free, asking)
    if perhaps and machine.admit(free | perhaps, asking) != found:
        return NOT_YET
    if found is None:
        idle = _Machine(topology_class, manager.idle)
        return _refused(manager.policy, asking, resolvable=idle.admit(sum(idle.gpus), asking) is not None)
    return found if isinstance(found, Rejection) else machine.parts(found)


def _as_one(containers: Sequence[ContainerGpus]) -> ContainerGpus:
    """Return the pod as the scope `pod` sees it."""
    gpus = widest((each.gpus, each.init) for each in containers)
    return ContainerGpus("", gpus, cpus=widest((each.cpus, each.init) for each in containers))


def _refused(policy: Policy, asking: Sequence[ContainerGpus], *, resolvable: bool) -> Rejection:
    gpus, cpus = sum(each.gpus for each in asking), sum(each.cpus for each in asking)
    what = (f"{gpus} GPUs" if gpus != 1 else "a GPU") + (f" with {cpus} whole CPUs" if cpus else "")
    remedy = (
        "wait or ask for fewer" if resolvable else "ask for what one NUMA node has, or change topologyManagerPolicy"
    )
    figures = (
        "what is free is not on as few NUMA nodes as it could be" if resolvable else "idle, it would be no different"
    )
    return Rejection(
        Reason.KUBELET, f"the kubelet's policy {policy} would refuse {what}", figures, remedy, resolvable=resolvable
    )


Taken: TypeAlias = tuple[tuple[int, int], ...]
"""Masks of NUMA nodes, and how many GPUs come from there, container by container."""


class _Machine:
    """One node's GPUs and CPUs by NUMA node."""

    def __init__(self, topology_class: TopologyClass, manager: TopologyManager) -> None:
        gpus = enumerate(topology_class.node.gpus)
        whole = [(1 << i, gpu.numa_node) for i, gpu in gpus if not gpu.mig_enabled]
        cpus = {each.numa_node: each for each in manager.cpus}
        numa_nodes = sorted(cpus.keys() | {near for _, near in whole if near is not None})
        self._policy = manager.policy
        self._cpus = [cpus.get(numa_node, NumaCpus(numa_node, 0, 0)) for numa_node in numa_nodes]
        self.gpus = [sum(gpu for gpu, near in whole if near == each) for each in numa_nodes]
        """Mask of the GPUs of each NUMA node; a GPU that is near none of them is never aligned."""

    def admit(self, free: int, asking: Sequence[ContainerGpus]) -> Taken | Rejection | None:
        """Return from where the GPUs would come; `None`: the pod would be refused."""
        cpus = _Stock([each.total for each in self._cpus], [each.free for each in self._cpus])
        gpus = _Stock([each.bit_count() for each in self.gpus], [(each & free).bit_count() for each in self.gpus])
        taken: list[tuple[int, int]] = []
        for container in asking:
            if container.gpus and not (gpus.is_known and (cpus.is_known or not container.cpus)):
                return () if self._policy is Policy.BEST_EFFORT else SPREAD
            hints = [
                stock.hints(wanted)
                for stock, wanted in ((gpus, container.gpus), (cpus, container.cpus))
                if wanted and stock.is_known and any(stock.total)
            ]
            chosen = _merge(self._policy, hints) if hints else 0
            if chosen is None:
                return None
            taken += gpus.take(container.gpus, chosen, init=container.init)
            cpus.take(container.cpus, chosen, init=container.init)
        return tuple(taken)

    def parts(self, taken: Taken) -> Parts | Rejection:
        """Return the GPUs of these NUMA nodes; where they overlap without being the same, nothing is known of each."""
        counts: dict[int, int] = {}
        for numa_nodes, count in taken:
            mask = sum(self.gpus[i] for i in members_of(numa_nodes))
            counts[mask] = counts.get(mask, 0) + count
        if any(one & other for one, other in combinations(counts, 2)):
            return () if self._policy is Policy.BEST_EFFORT else SPREAD
        return tuple(sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class Hints:
    """The sets of NUMA nodes that could serve a container with one kind of resource."""

    all: frozenset[int]
    """Empty: none can."""
    preferred: frozenset[int]


def _merge(policy: Policy, kinds: Sequence[Hints]) -> int | None:
    """Return the NUMA nodes that the topology manager settles on; `None`: it refuses."""
    common = frozenset.intersection(*(each.preferred for each in kinds))
    if policy is Policy.SINGLE_NUMA_NODE:
        common = frozenset(each for each in common if each.bit_count() == 1)
    if common:
        return min(common, key=_narrowest)
    if policy is not Policy.BEST_EFFORT:
        return None
    able = [each.all for each in kinds if each.all]
    wanted = max((min(map(int.bit_count, each)) for each in able), default=0)
    merged = {-1}
    for each in able:
        merged = {one & other for one in merged for other in each}
    return min(merged - {0, -1}, key=lambda each: _nearest(each, wanted), default=0)


def _narrowest(numa_nodes: int) -> tuple[int, int]:
    return numa_nodes.bit_count(), numa_nodes


def _nearest(numa_nodes: int, wanted: int) -> tuple[bool, int, int]:
    """Order sets none of which is preferred: as many as wanted, else the most below, else the fewest above."""
    count = numa_nodes.bit_count()
    return count > wanted, abs(count - wanted), numa_nodes


@dataclass(slots=True)
class _Stock:
    """How many of one kind each NUMA node has, and has left."""

    total: list[int]
    free: list[int]
    kept: list[int] | None = None
    """Of the pod itself, from its init containers: those after them get these first."""
    is_known: bool = True
    """Whether it is determined what is left."""

    def hints(self, wanted: int) -> Hints:
        """Return what this kind would like."""
        places = [i for i, total in enumerate(self.total) if total]
        kept = self.kept or [0] * len(self.total)
        must = sum(1 << i for i, count in enumerate(kept) if count)
        smallest, could = len(places), []
        for size in range(1, len(places) + 1):
            for chosen in combinations(places, size):
                if sum(self.total[i] for i in chosen) >= wanted:
                    smallest = min(smallest, size)
                mask = sum(1 << i for i in chosen)
                if not must & ~mask and sum(self.free[i] + kept[i] for i in chosen) >= wanted:
                    could.append(mask)
        return Hints(frozenset(could), frozenset(mask for mask in could if mask.bit_count() == smallest))

    def take(self, wanted: int, numa_nodes: int, *, init: bool) -> list[tuple[int, int]]:
        """Give a container its own, those of the NUMA nodes first, and return from where; what it keeps is not counted anew."""
        kept = self.kept or [0] * len(self.total)
        new = max(0, wanted - sum(kept))
        if not init and wanted:
            self.is_known &= wanted >= sum(kept) or sum(map(bool, kept)) == 1
            kept = [count - wanted if wanted < sum(kept) and count else 0 for count in kept]
        taken = []
        for part in (numa_nodes, (1 << len(self.total)) - 1 & ~numa_nodes):
            places = [i for i in members_of(part) if self.free[i]]
            there = sum(self.free[i] for i in places)
            if count := min(new, there):
                taken.append((part, count))
                self.is_known &= len(places) == 1 or count == there
            for i in places:
                used = min(count, self.free[i])
                self.free[i] -= used
                kept[i] += used if init else 0
            new -= count
        self.kept = kept
        return taken
