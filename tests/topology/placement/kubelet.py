"""The kubelet's own way of aligning a pod, written down from its source as it goes about it: slowly, one permutation at a time.

Kubernetes 1.36, `pkg/kubelet/cm`: `topologymanager/policy.go` (`HintMerger`), `policy_*.go`, `scope_*.go`,
`devicemanager/topology_hints.go` and `manager.go` (`devicesToAllocate`), `cpumanager/policy_static.go`. Memory manager and
options of the policies are left out. It is what predictions are compared with, so it shares no code with them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from topology.node.alignment import Policy, Scope
from topology.request.gpu_request import ContainerGpus

Affinity = frozenset[int] | None
Hint = tuple[Affinity, bool]
"""NUMA nodes, and whether they are preferred."""


class Refused(Exception):
    """TopologyAffinityError, or too few devices."""


@dataclass
class Kubelet:
    """One kubelet at the moment at which a pod arrives.

    Args:
        policy: of the topology manager.
        scope: of the topology manager.
        gpus: GPU → its NUMA node, if it has one.
        cpus: CPU → its NUMA node, of all CPUs.
        free: GPUs that nobody holds.
        free_cpus: CPUs that may be given away.
        prefer: the plugin: of available GPUs, those that must be among them, and a size, returns what to take.

    """

    policy: Policy
    scope: Scope
    gpus: Mapping[int, int | None]
    cpus: Mapping[int, int]
    free: set[int]
    free_cpus: set[int]
    prefer: Callable[[set[int], set[int], int], set[int]]
    reusable: set[int] = field(default_factory=set)
    reusable_cpus: set[int] = field(default_factory=set)

    def admit(self, containers: Sequence[ContainerGpus]) -> list[set[int]]:
        """Return the GPUs of each container, or raise `Refused`."""
        hint: Hint = (None, True)
        if self.scope is Scope.POD:
            whole = [self._most([(getattr(each, kind), each.init) for each in containers]) for kind in ("gpus", "cpus")]
            hint = self._settle(*whole)
        got = []
        for container in containers:
            if self.scope is Scope.CONTAINER:
                hint = self._settle(container.gpus, container.cpus)
            self._give_cpus(container, hint[0])
            got.append(self._give_gpus(container, hint[0]))
        return got

    def _most(self, asked: Iterable[tuple[int, bool]]) -> int:
        init = sidecars = apps = 0
        for count, is_init in asked:
            if is_init:
                init = max(init, sidecars + count)
            else:
                sidecars += count
        return max(init, sidecars + apps)

    def _settle(self, gpus: int, cpus: int) -> Hint:
        providers: list[list[Hint]] = []
        if gpus and any(near is not None for near in self.gpus.values()):
            reusable = self.reusable if self.scope is Scope.CONTAINER else set()
            providers.append(self._hints(self.gpus, self.free, reusable, gpus))
        if cpus and self.cpus:
            providers.append(self._hints(self.cpus, self.free_cpus, self.reusable_cpus, cpus))
        found, admitted = self._merge([hints or [(None, False)] for hints in providers])
        if not admitted:
            raise Refused
        return found

    def _hints(self, where: Mapping[int, int | None], free: set[int], reusable: set[int], wanted: int) -> list[Hint]:
        nodes = sorted({near for near in where.values() if near is not None})
        smallest, found = len(nodes), []
        for mask in _masks(nodes):
            if sum(near in mask for near in where.values()) >= wanted:
                smallest = min(smallest, len(mask))
            if any(where[each] not in mask for each in reusable):
                continue
            if sum(where[each] in mask for each in free | reusable) >= wanted:
                found.append(mask)
        return [(mask, len(mask) == smallest) for mask in found]

    def _merge(self, providers: Sequence[Sequence[Hint]]) -> tuple[Hint, bool]:
        everywhere = frozenset({near for near in self.gpus.values() if near is not None} | set(self.cpus.values()))
        if self.policy is Policy.SINGLE_NUMA_NODE:
            providers = [
                [(where, good) for where, good in hints if good and (where is None or len(where) == 1)]
                for hints in providers
            ]
        narrowest = [min((len(where) for where, _ in hints if where is not None), default=0) for hints in providers]
        wanted = max(narrowest, default=0)
        best: tuple[frozenset[int], bool] | None = None
        for permutation in product(*providers):
            affinities = [where for where, _ in permutation if where is not None]
            preferred = all(good for _, good in permutation) and all(each == affinities[0] for each in affinities)
            merged = everywhere.intersection(*affinities)
            best = _better(best, (merged, preferred), wanted)
        where, preferred = best or (everywhere, False)
        affinity: Affinity = where
        if self.policy is Policy.SINGLE_NUMA_NODE and where == everywhere:
            affinity = None
        return (affinity, preferred), preferred or self.policy is Policy.BEST_EFFORT

    def _give_cpus(self, container: ContainerGpus, affinity: Affinity) -> None:
        if not self.cpus or not container.cpus:
            return
        pool = self.free_cpus | self.reusable_cpus
        order = sorted(
            pool,
            key=lambda cpu: (
                cpu not in self.reusable_cpus,
                affinity is not None and self.cpus[cpu] not in affinity,
                cpu,
            ),
        )
        if len(order) < container.cpus:
            raise Refused
        got = set(order[: container.cpus])
        self.free_cpus -= got
        self.reusable_cpus = self.reusable_cpus | got if container.init else self.reusable_cpus - got

    def _give_gpus(self, container: ContainerGpus, affinity: Affinity) -> set[int]:
        wanted = container.gpus
        got = set(sorted(self.reusable)[:wanted])
        if len(got) < wanted:
            got = self._new_gpus(got, wanted, affinity)
        self.free -= got
        if container.init:
            self.reusable |= got
        else:
            self.reusable -= got
        return got

    def _new_gpus(self, got: set[int], wanted: int, affinity: Affinity) -> set[int]:
        needed = wanted - len(got)
        if len(self.free) < needed:
            raise Refused
        aligned = {gpu for gpu in self.free if affinity is not None and self.gpus[gpu] in affinity}
        if affinity is None or all(near is None for near in self.gpus.values()):
            return self.prefer(self.free | got, got, wanted)
        if needed < len(aligned):
            return self.prefer(aligned | got, got, wanted)
        got = got | aligned
        return got if len(got) == wanted else self.prefer(self.free | got, got, wanted)


def _masks(nodes: Sequence[int]) -> Iterator[frozenset[int]]:
    for size in range(1, len(nodes) + 1):
        yield from map(frozenset, combinations(nodes, size))


def _better(
    current: tuple[frozenset[int], bool] | None, candidate: tuple[frozenset[int], bool], wanted: int
) -> tuple[frozenset[int], bool] | None:
    """`HintMerger.compare`, case by case."""
    if not candidate[0]:
        return current
    if current is None:
        return candidate
    if current[1] != candidate[1]:
        return candidate if candidate[1] else current
    narrower = current if _order(current[0]) <= _order(candidate[0]) else candidate
    has, offers = len(current[0]), len(candidate[0])
    if current[1] or has > wanted:
        return narrower
    if has == wanted:
        return narrower if offers == wanted else current
    if offers > wanted:
        return current
    if offers == wanted or offers > has:
        return candidate
    return current if offers < has else narrower


def _order(nodes: frozenset[int]) -> tuple[int, int]:
    return len(nodes), sum(1 << node for node in nodes)
