"""What a policy is, and the form that most peers have: one rule chooses the node, another the GPUs on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar, runtime_checkable

from benchmarks.placement.cluster import Allotment, Cluster, ServerState
from benchmarks.placement.device_plugin import DevicePlugin
from benchmarks.placement.jobs import Job, PodSize
from topology.node.model import NodeTopology
from topology.placement.nvidia_best_effort import Outcome

T = TypeVar("T")

Placed = tuple[Allotment, ...]


class PlacementPolicy(Protocol):
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

    def place_queue(self, jobs: Sequence[Job], now_s: float) -> Iterator[tuple[Job, Placed]]:
        """Yield those of the waiting jobs that go somewhere now, and where; each is taken before the next one is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs."""

    job: Job
    placed: Placed
    since_s: float
    """When it began, or was moved last."""

    @property
    def is_single(self) -> bool:
        """Whether it is one pod with GPUs, as only those are moved."""
        return len(self.placed) == 1 and self.job.gpus > 0

    def lost_s(self, now_s: float, restart_s: float) -> float:
        """Return how much work it does again if it moves: what it has done since then, at most `restart_s`."""
        return min(now_s - self.since_s, restart_s)


@dataclass(frozen=True, slots=True)
class Move:
    """A running job that goes elsewhere."""

    running: RunningJob
    placed: Placed
    lost_s: float
    """Work that it has to do again; how long that took on its old GPUs."""


@dataclass(frozen=True, slots=True)
class MadeRoom:
    """A place for a job, and the moves that make it."""

    placed: Placed
    moves: tuple[Move, ...]


@runtime_checkable
class MakesRoom(Protocol):
    """A policy that moves running jobs for one that finds no place."""

    def make_room(self, job: Job, running: Iterable[RunningJob], now_s: float) -> MadeRoom | None:
        """Return which jobs move where, `None` if that does not help, or costs more than it brings."""
        ...


@runtime_checkable
class Repacks(Protocol):
    """A policy that moves running jobs from time to time, whether or not one waits."""

    @property
    def period_s(self) -> float:
        """How long it waits from one pass to the next."""
        ...

    def repack(self, running: Iterable[RunningJob], now_s: float) -> Sequence[Move]:
        """Return which jobs move where; all of them give back their GPUs first."""
        ...


@runtime_checkable
class ByPlugin(Protocol):
    """A policy that chooses the node only."""

    def chances(self, node: ServerState, gpus: int) -> tuple[Outcome, ...]:
        """Return all sets that a pod of so many whole GPUs may get on its node, with their chances."""
        ...


PolicyFactory = Callable[[Cluster, Random], PlacementPolicy]


class PodByPod(ABC):
    """A policy that knows no gangs: it places the pods of a job one after the other, all or none."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ended(self, job: Job) -> None:
        """Take note that a job is gone; most policies learn nothing from it."""
        return

    @abstractmethod
    def choose(self, pod: PodSize, job: Job) -> Allotment | None:
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


NodeScore = Callable[[ServerState, PodSize], float]
"""Higher is better."""
Rank = float | tuple[float, float]
GpuRule = Callable[[NodeTopology, int, int], tuple[int, ...]]
"""(topology, mask of free GPUs, how many) → positions; a function of these three, so that it can be remembered."""

ShareRule = Callable[[ServerState, PodSize], tuple[int, ...]]
"""The GPUs for a pod that takes part of each."""


class NodeFirst(PodByPod):
    """The node with the highest score, equal ones by lot as kube-scheduler does it; then GPUs on it.

    Shares go to the fullest GPU with room, or as `share_rule` says.
    """

    def __init__(self, cluster: Cluster, random: Random, score: NodeScore, share_rule: ShareRule | None = None) -> None:
        super().__init__(cluster)
        self._share_rule = share_rule or fullest_gpus
        self._random = random
        self._score = score

    @abstractmethod
    def whole_gpus(self, node: ServerState, gpus: int) -> tuple[int, ...]:
        """Return so many of the node's free GPUs."""

    def choose(self, pod: PodSize, job: Job) -> Allotment | None:
        """Return the place of one pod; linear in the nodes."""
        fitting = self.cluster.fitting(pod)
        if not fitting:
            return None
        node = best_by_lot(fitting, lambda node: self._score(node, pod), self._random)
        return Allotment(node.index, self._gpus(node, pod), pod)

    def _gpus(self, node: ServerState, pod: PodSize) -> tuple[int, ...]:
        if pod.shares:
            return self._share_rule(node, pod)
        return self.whole_gpus(node, pod.gpus) if pod.gpus else ()


class NodeThenGpus(NodeFirst):
    """A scheduler that imposes its choice of GPUs, by a rule that sees the topology and the free GPUs."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        score: NodeScore,
        gpu_rule: GpuRule,
        share_rule: ShareRule | None = None,
    ) -> None:
        super().__init__(cluster, random, score, share_rule)
        self._gpu_rule = gpu_rule
        self._remembered: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def whole_gpus(self, node: ServerState, gpus: int) -> tuple[int, ...]:
        """Return what the rule says."""
        key = node.kind, node.free, gpus
        if key not in self._remembered:
            self._remembered[key] = self._gpu_rule(node.server.topology, node.free, gpus)
        return self._remembered[key]


class NodeThenPlugin(NodeFirst):
    """A scheduler that imposes no GPUs: the node's device plugin chooses them."""

    def __init__(self, cluster: Cluster, random: Random, score: NodeScore, plugin: DevicePlugin) -> None:
        super().__init__(cluster, random, score)
        self._plugin = plugin

    def whole_gpus(self, node: ServerState, gpus: int) -> tuple[int, ...]:
        """Return what the plugin hands out."""
        return self._plugin.hand_out(node, gpus)

    def chances(self, node: ServerState, gpus: int) -> tuple[Outcome, ...]:
        """Return what the plugin may hand out."""
        return self._plugin.outcomes(node.server.topology, node.free, gpus)


def best_by_lot(choices: Sequence[T], score: Callable[[T], Rank], random: Random) -> T:
    """Return one of those with the highest score, each with the same chance."""
    scores = [score(choice) for choice in choices]
    top = max(scores)
    equals = [choice for choice, found in zip(choices, scores, strict=True) if found == top]
    return equals[0] if len(equals) == 1 else random.choice(equals)


def fullest_gpus(node: ServerState, pod: PodSize) -> tuple[int, ...]:
    """Return the GPUs with the least left that is still enough, lowest of equals first."""
    enough = [(left, position) for position, left in enumerate(node.gpu_milli) if left >= pod.gpu_milli]
    return tuple(position for _, position in sorted(enough)[: pod.gpus])


def emptiest_gpus(node: ServerState, pod: PodSize) -> tuple[int, ...]:
    """Return the GPUs with the most left, lowest of equals first."""
    ranked = sorted(range(len(node.gpu_milli)), key=lambda position: -node.gpu_milli[position])
    return tuple(ranked[: pod.gpus])
