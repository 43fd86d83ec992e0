"""The simulated cluster: what is free on each node, GPU by GPU, and a journal of which node changed when.

Policies read it and never write; only the engine takes and gives back. What a policy derives from a node it keeps up to date by
reading the journal from where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.placement.jobs import Job, PodSize
from topology.bandwidth.rings import members_of
from topology.node.model import NodeTopology
from topology.value.fragmentation import WHOLE_GPU_MILLI


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A node as it was bought."""

    name: str
    topology: NodeTopology
    cpu_milli: int = 0
    memory_mib: int = 0
    model: str = ""
    """Of its GPUs, in the trace's words."""
    leaf: str = ""
    """The switch it hangs on; only policies that know racks look at it."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """One pod's GPUs."""

    node: int
    gpus: tuple[int, ...]
    """Positions, in ring order where the policy knows one."""
    pod: PodSize

    @property
    def mask(self) -> int:
        """The GPUs as a bit mask."""
        return sum(1 << position for position in self.gpus)


class ServerState:
    """What is free on one server now."""

    __slots__ = ("allotments", "cpu_milli", "free", "free_gpus", "gpu_milli", "index", "kind", "memory_mib", "server")

    def __init__(self, index: int, server: ServerSpec, kind: int) -> None:
        self.index = index
        self.server = server
        self.kind = kind
        """The same number for nodes with equal topology: a key that is quick to look up."""
        self.gpu_milli = [WHOLE_GPU_MILLI] * len(server.topology)
        self.free = (1 << len(server.topology)) - 1
        """The GPUs of which nothing is taken, as a mask."""
        self.free_gpus = len(server.topology)
        """How many these are."""
        self.cpu_milli = server.cpu_milli
        self.memory_mib = server.memory_mib
        self.allotments: list[Allotment] = []
        """What runs here."""

    def fits(self, pod: PodSize) -> bool:
        """Whether the pod could go here: what the stock scheduler and a device plugin count."""
        return (
            self.free_gpus >= pod.gpus
            if pod.gpu_milli == WHOLE_GPU_MILLI
            else sum(milli >= pod.gpu_milli for milli in self.gpu_milli) >= pod.gpus
        ) and self.fits_beside_gpus(pod)

    def fits_beside_gpus(self, pod: PodSize) -> bool:
        """Whether CPU, memory and GPU model suit the pod."""
        return (
            pod.cpu_milli <= self.cpu_milli
            and pod.memory_mib <= self.memory_mib
            and (not pod.models or self.server.model in pod.models)
        )

    @property
    def free_positions(self) -> tuple[int, ...]:
        """The wholly free GPUs."""
        return members_of(self.free)

    def _add(self, allotment: Allotment, sign: int) -> None:
        self.cpu_milli += sign * allotment.pod.cpu_milli
        self.memory_mib += sign * allotment.pod.memory_mib
        for position in allotment.gpus:
            left = self.gpu_milli[position] = self.gpu_milli[position] + sign * allotment.pod.gpu_milli
            assert 0 <= left <= WHOLE_GPU_MILLI, f"GPU {position} of {self.server.name} would have {left} milli free"
            if left == WHOLE_GPU_MILLI:
                self.free |= 1 << position
            else:
                self.free &= ~(1 << position)
        self.free_gpus = self.free.bit_count()


class Cluster:
    """All nodes."""

    def __init__(self, servers: Sequence[ServerSpec]) -> None:
        kinds: dict[NodeTopology, int] = {}
        self.nodes = [
            ServerState(index, server, kinds.setdefault(server.topology, len(kinds)))
            for index, server in enumerate(servers)
        ]
        self.gpus = sum(len(server.topology) for server in servers)
        self.journal: list[int] = []
        """The index of each node that changed, oldest first."""
        self.free_gpus = self.gpus
        """Wholly free ones."""
        self._nodes_by_free = [0] * (max((len(server.topology) for server in servers), default=0) + 1)
        for node in self.nodes:
            self._nodes_by_free[node.free_gpus] += 1
        self._most_free = len(self._nodes_by_free) - 1
        """On one node."""

    def take(self, allotment: Allotment) -> None:
        """Give the pod its GPUs, CPU and memory; more than is free is a defect of the policy."""
        self._change(allotment, -1)
        self.nodes[allotment.node].allotments.append(allotment)

    def give_back(self, allotment: Allotment) -> None:
        """Undo `take`."""
        self._change(allotment, 1)
        self.nodes[allotment.node].allotments.remove(allotment)

    def may_fit(self, job: Job) -> bool:
        """Say no where whole GPUs are too few, together or on every node; then no policy needs to be asked."""
        return job.whole_gpus <= self.free_gpus and job.most_whole_gpus <= self._most_free

    def has_enough(self, job: Job) -> bool:
        """Whether as many whole GPUs are free as the job needs, wherever they are."""
        return job.whole_gpus <= self.free_gpus

    def fitting(self, pod: PodSize) -> list[ServerState]:
        """Return the nodes where the pod could go, in order; linear in the nodes."""
        return [node for node in self.nodes if node.fits(pod)]

    def _change(self, allotment: Allotment, sign: int) -> None:
        node = self.nodes[allotment.node]
        before = node.free_gpus
        node._add(allotment, sign)
        after = node.free_gpus
        self._nodes_by_free[before] -= 1
        self._nodes_by_free[after] += 1
        self.free_gpus += after - before
        self._most_free = max(self._most_free, after)
        while self._most_free and not self._nodes_by_free[self._most_free]:
            self._most_free -= 1
        self.journal.append(allotment.node)

    @property
    def free_gpu_milli(self) -> int:
        """What is free of all GPUs together."""
        return sum(sum(node.gpu_milli) for node in self.nodes)
