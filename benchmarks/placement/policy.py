"""What a policy is, and the form that most peers have: one rule chooses the node, another the GPUs on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Protocol, TypeVar, runtime_checkable

from benchmarks.placement.cluster import Allotment, Cluster, Node
from benchmarks.placement.jobs import Job, Pod
from topology.node.model import NodeTopology

T = TypeVar("T")

Placed = tuple[Allotment, ...]


class Policy(Protocol):
    """Says where a job goes now; it takes nothing itself."""

    def place(self, job: Job) -> Placed | None:
        """Return one allotment for each pod, or `None` when the job has to wait."""
        ...

    def ended(self, job: Job) -> None:
        """Take note that a job is gone; its GPUs are free by now."""
        ...


@runtime_checkable
class PlansQueues(Protocol):
    """A policy that plans for jobs together."""

    def place_queue(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Placed]]:
        """Yield those of the waiting jobs that go somewhere now, and where; each is taken before the next one is asked for."""
        ...


PolicyFactory = Callable[[Cluster, Random], Policy]


class PodByPod(ABC):
    """A policy that knows no gangs: it places the pods of a job one after the other, all or none."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ended(self, job: Job) -> None:
        """Take note that a job is gone; most policies learn nothing from it."""
        return

    @abstractmethod
    def choose(self, pod: Pod, job: Job) -> Allotment | None:
        """Return the place of one pod."""

    def place(self, job: Job) -> Placed | None:
        """Place each pod beside those before it."""
        if len(job.pods) == 1:
            alone = self.choose(job.pods[0], job)
            return None if alone is None else (alone,)
        taken: list[Allotment] = []
        try:
            for pod in job.pods:
                found = self.choose(pod, job)
                if found is None:
                    return None
                self.cluster.take(found)
                taken.append(found)
            return tuple(taken)
        finally:
            for allotment in reversed(taken):
                self.cluster.give_back(allotment)


NodeScore = Callable[[Node, Pod], float]
"""Higher is better."""
Rank = float | tuple[float, float]
GpuRule = Callable[[NodeTopology, int, int], tuple[int, ...]]
"""(topology, mask of free GPUs, how many) → positions; a function of these three, so that it can be remembered."""

ShareRule = Callable[[Node, Pod], tuple[int, ...]]
"""The GPUs for a pod that takes part of each."""


class NodeThenGpus(PodByPod):
    """The node with the highest score, equal ones by lot as kube-scheduler does it; then GPUs by a rule that sees no more.

    The rules for whole GPUs say nothing of shares; those go to the fullest GPU with room, or as `share_rule` says.
    """

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        score: NodeScore,
        gpu_rule: GpuRule,
        share_rule: ShareRule | None = None,
    ) -> None:
        super().__init__(cluster)
        self._share_rule = share_rule or fullest_gpus
        self._random = random
        self._score = score
        self._gpu_rule = gpu_rule
        self._known: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def choose(self, pod: Pod, job: Job) -> Allotment | None:
        """Return the place of one pod; linear in the nodes."""
        fitting = self.cluster.fitting(pod)
        if not fitting:
            return None
        node = best_by_lot(fitting, lambda node: self._score(node, pod), self._random)
        return Allotment(node.index, self._gpus(node, pod), pod)

    def _gpus(self, node: Node, pod: Pod) -> tuple[int, ...]:
        if pod.shares:
            return self._share_rule(node, pod)
        key = node.kind, node.free, pod.gpus
        if key not in self._known:
            self._known[key] = self._gpu_rule(node.server.topology, node.free, pod.gpus) if pod.gpus else ()
        return self._known[key]


def best_by_lot(choices: Sequence[T], score: Callable[[T], Rank], random: Random) -> T:
    """Return one of those with the highest score, each with the same chance."""
    scores = [score(choice) for choice in choices]
    top = max(scores)
    equals = [choice for choice, found in zip(choices, scores, strict=True) if found == top]
    return equals[0] if len(equals) == 1 else random.choice(equals)


def fullest_gpus(node: Node, pod: Pod) -> tuple[int, ...]:
    """Return the GPUs with the least left that is still enough, lowest of equals first."""
    enough = [(left, position) for position, left in enumerate(node.gpu_milli) if left >= pod.gpu_milli]
    return tuple(position for _, position in sorted(enough)[: pod.gpus])


def emptiest_gpus(node: Node, pod: Pod) -> tuple[int, ...]:
    """Return the GPUs with the most left, lowest of equals first."""
    ranked = sorted(range(len(node.gpu_milli)), key=lambda position: -node.gpu_milli[position])
    return tuple(ranked[: pod.gpus])
