"""What a node's kubelet does about NUMA nodes: the policy of its topology manager, and the CPUs that it gives away whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Policy(StrEnum):
    """The policies under which the topology manager looks at NUMA nodes at all; without one of them it admits everything."""

    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Scope(StrEnum):
    """What is aligned as one."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class NumaCpus:
    """The CPUs of one NUMA node, where the kubelet's CPU manager gives whole CPUs to containers."""

    numa_node: int
    total: int
    free: int
    """Neither reserved for the system nor given to a container."""


@dataclass(frozen=True, slots=True)
class TopologyManager:
    """How the kubelet aligns what containers get, as far as it is known."""

    policy: Policy
    scope: Scope = Scope.CONTAINER
    cpus: tuple[NumaCpus, ...] = ()
    """By NUMA node; empty: CPUs have no say, or none that is known."""

    @property
    def idle(self) -> TopologyManager:
        """The same where no container has a CPU of its own."""
        return replace(self, cpus=tuple(replace(each, free=each.total) for each in self.cpus))
