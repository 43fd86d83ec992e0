"""How this node's kubelet aligns what containers get, as others are told of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topology.node.alignment import NumaCpus, Policy, Scope, TopologyManager


@dataclass(frozen=True, slots=True)
class Alignment:
    """Policy and scope of the topology manager."""

    policy: Policy
    scope: Scope
    cpus_count: bool = True
    """Whether it is known by which rule CPUs are aligned."""

    @classmethod
    def named(cls, policy: str, scope: str, *, cpus_count: bool = True) -> Alignment | None:
        """Return what these words of the kubelet's configuration ask for; `None` for no alignment, which is the default."""
        if policy not in [*Policy]:
            return None
        return cls(Policy(policy), Scope(scope) if scope in [*Scope] else Scope.CONTAINER, cpus_count)

    def told(self, numa_nodes: Mapping[int, int], allocatable: Iterable[int], held: Iterable[int]) -> TopologyManager:
        """Return the same with the CPUs as they are now.

        Args:
            numa_nodes: CPU → its NUMA node, of all CPUs.
            allocatable: CPUs that containers can have for themselves; none where the CPU manager is not static.
            held: Those that containers have.

        """
        left = {*allocatable}
        if not (left and self.cpus_count and left <= numa_nodes.keys()):
            return TopologyManager(self.policy, self.scope)
        total, free = Counter(numa_nodes.values()), Counter(numa_nodes[cpu] for cpu in left.difference(held))
        cpus = tuple(NumaCpus(numa_node, total[numa_node], free[numa_node]) for numa_node in sorted(total))
        return TopologyManager(self.policy, self.scope, cpus)
