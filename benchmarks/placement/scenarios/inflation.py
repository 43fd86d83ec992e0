"""FGD's inflation experiment: pods of a trace arrive in random order until 130 % of all GPUs are asked for, and none ever leaves.

As published (ATC'23, hkust-adsl/kubernetes-scheduler-simulator): the trace's pods are shuffled, then pods drawn from it
are added up to the target. A pod that does not fit is gone. Nodes get names in random order. Metrics are means over the
arrivals at which the requested GPUs round to x percent of the cluster's. A small cluster may have none; then what stood
before the first that requests more counts. `allocation_pct` and `fragmentation_pct` are of all GPUs, and
`fragmentation_ratio_pct` is of the idle ones, by FGD's own measure of fragmentation. `pods_placed` of `pods_arrived` are
those that request GPUs. The trace may tell how nodes are wired. Then `bandwidth_ratio_mean` is the predicted bandwidth of
pods of several GPUs over that of the best set there is. `bandwidth_ratio_quantile` is how it spreads.
`bandwidth_gb_per_s_mean` is that bandwidth itself, and `node_type_ratio_mean` is it over that of the best set of the pod's
own node. `fits_nowhere` counts pods that not even an empty node would take, if any came.

A policy that makes room does so until as many GPUs are asked for as there are. `moved` counts the moves, `moved_gpus` their GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from random import Random

import numpy as np

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.columns import Columns
from benchmarks.placement.fragmentation import FragmentationMeasure, typical_pods
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.policy import MakesRoom, Placed, PlacementPolicy, RunningJob
from benchmarks.placement.rows import ResultRow, mean, quantile_rows, rows
from benchmarks.placement.speed import SpeedModel
from benchmarks.placement.traces.openb import OpenbTrace
from topology.node.model import NodeTopology
from topology.request.gpu_request import Communication
from topology.value.fragmentation import WHOLE_GPU_MILLI

ASKED = 1.3
XS = (10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 98, 100, 105, 110, 115, 120, 125, 130)
"""Percent of the cluster's GPUs asked for so far; those of the published tables."""
MOVES_UNTIL_PCT = 100
"""Percent of the cluster's GPUs asked for until which pods move; beyond it not all can have a place."""
METRICS = ("allocation_pct", "fragmentation_pct", "fragmentation_ratio_pct", "pods_placed", "pods_arrived")
"""What is read along the way."""


@dataclass(frozen=True, slots=True)
class Inflation:
    """The scenario; its workloads are the pod lists of the folder."""

    trace: OpenbTrace

    @property
    def workloads(self) -> tuple[str, ...]:
        """All pod lists."""
        return self.trace.workloads

    @property
    def policies(self) -> tuple[str, ...]:
        """FGD's own comparison, FGD without its patched scheduler, and stock Kubernetes."""
        return (
            "random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd", "fgd-lot", "fgd-extender",
            "fgd-extender-lot", "best-fit-lot", "gputopo",
        )  # fmt: skip

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell of the experiment."""
        random = Random(seed)  # noqa: S311 - a simulation
        pods = self.trace.pods(workload)
        servers = list(self.trace.servers())
        arrivals = inflated(pods, sum(len(server.topology) for server in servers), random)
        random.shuffle(servers)
        cluster = Cluster(servers)
        chosen = policy_for_pods(policy, pods)(cluster, random)
        wires = _Wires(cluster)
        fits_nowhere = _fits_nowhere(arrivals, cluster)
        room = _Room(cluster, chosen) if isinstance(chosen, MakesRoom) else None
        measured = _measured(cluster, chosen, arrivals, _Meter(cluster, pods), wires, room)
        along = [ResultRow(workload, policy, seed, metric, float(x), value) for x, metric, value in measured]
        whole = {
            "bandwidth_ratio_mean": mean(wires.ratios),
            "bandwidth_gb_per_s_mean": mean(wires.gb_per_s),
            "node_type_ratio_mean": mean(wires.node_type_ratios),
            "fits_nowhere": float(fits_nowhere) if fits_nowhere else nan,
            "moved": float(room.moved) if room else nan,
            "moved_gpus": float(room.moved_gpus) if room else nan,
        }
        spread = quantile_rows(workload, policy, seed, "bandwidth_ratio", wires.ratios)
        return along + rows(workload, policy, seed, whole) + spread


def inflated(pods: Sequence[PodSize], gpus: int, random: Random) -> list[PodSize]:
    """Return the pods shuffled, with others drawn from them added, or some taken out, until they ask for 130 % of the GPUs."""
    target = ASKED * gpus * WHOLE_GPU_MILLI
    arrivals = random.sample(pods, len(pods))
    asked = sum(pod.gpus * pod.gpu_milli for pod in arrivals)
    while asked > target:
        gone = arrivals.pop(random.randrange(len(arrivals)))
        asked -= gone.gpus * gone.gpu_milli
    while any(pod.gpus for pod in pods):
        more = random.choice(pods)
        if asked + (more.gpu_milli if more.gpus else 0) > target:
            break
        asked += more.gpus * more.gpu_milli
        arrivals.append(more)
    return arrivals


def _fits_nowhere(arrivals: Sequence[PodSize], cluster: Cluster) -> int:
    """Count the pods that no node would take if it were empty, as all are now."""
    kinds = Counter(arrivals)
    return sum(count for pod, count in kinds.items() if not any(node.fits(pod) for node in cluster.nodes))


class _Meter:
    """Allocation and fragmentation now, in percent."""

    def __init__(self, cluster: Cluster, pods: Sequence[PodSize]) -> None:
        self._all_milli = cluster.gpus * WHOLE_GPU_MILLI
        self._columns = Columns(cluster)
        self._fragmentation = FragmentationMeasure(typical_pods(pods), self._columns.models)
        self._fragments = np.zeros(len(cluster.nodes))
        self._update(list(range(len(cluster.nodes))))

    def read(self) -> tuple[float, float, float]:
        """Return allocation and fragmentation of all GPUs, and fragmentation of the idle ones."""
        changed = self._columns.catch_up()
        if changed:
            self._update(changed)
        idle, fragments = int(self._columns.idle_milli.sum()), float(self._fragments.sum())
        allocated = 100 * (self._all_milli - idle) / self._all_milli
        return allocated, 100 * fragments / self._all_milli, 100 * fragments / idle if idle else 100.0

    def _update(self, nodes: list[int]) -> None:
        columns = self._columns
        self._fragments[nodes] = self._fragmentation.of(
            columns.cpu_milli[nodes], columns.gpu_milli[nodes], columns.model[nodes]
        )


class _Wires:
    """How good the sets of pods with several GPUs are; of nodes whose wires nobody knows there is nothing to say."""

    def __init__(self, cluster: Cluster) -> None:
        known = any(is_wired(node.server.topology) for node in cluster.nodes)
        self.communication = Communication.HEAVY if known else Communication.NONE
        self.ratios: list[float] = []
        self.gb_per_s: list[float] = []
        self.node_type_ratios: list[float] = []
        self._speed = SpeedModel(cluster) if known else None

    def saw(self, job: Job, placed: Placed) -> None:
        """Take note of where a job went."""
        if self._speed is not None and job.gpus > 1:
            bandwidth = self._speed.bandwidth(placed)
            self.gb_per_s.append(bandwidth)
            self.ratios.append(bandwidth / self._speed.best_bandwidth(job))
            self.node_type_ratios.append(bandwidth / self._speed.best_on_node_of(placed))


class _Room:
    """The pods that run, and moves of some of them; sets of pods that are moved count as they were chosen first."""

    def __init__(self, cluster: Cluster, policy: MakesRoom) -> None:
        self.moved = self.moved_gpus = 0
        self._cluster = cluster
        self._policy = policy
        self._running: dict[int, RunningJob] = {}

    def runs(self, job: Job, placed: Placed) -> None:
        """Take note of where a job runs."""
        self._running[job.number] = RunningJob(job, placed, job.arrival_s)

    def made_for(self, job: Job) -> Placed | None:
        """Return the place of a job after others have moved for it."""
        room = self._policy.make_room(job, self._running.values(), job.arrival_s)
        if room is None:
            return None
        for move in room.moves:
            for allotment in move.running.placed:
                self._cluster.give_back(allotment)
        for move in room.moves:
            for allotment in move.placed:
                self._cluster.take(allotment)
            self.runs(move.running.job, move.placed)
            self.moved += 1
            self.moved_gpus += move.running.job.gpus
        return room.placed


def is_wired(node: NodeTopology) -> bool:
    """Whether anything is known of what joins the GPUs."""
    return bool(node.links) or any(gpu.switch_links for gpu in node.gpus)


def _measured(
    cluster: Cluster,
    policy: PlacementPolicy,
    arrivals: Iterable[PodSize],
    meter: _Meter,
    wires: _Wires,
    room: _Room | None,
) -> list[tuple[int, str, float]]:
    asked = x = arrived = found_place = 0
    readings: dict[int, list[tuple[float, ...]]] = {point: [] for point in XS}

    def read() -> tuple[float, ...]:
        return *meter.read(), float(found_place), float(arrived)

    for number, pod in enumerate(arrivals):
        asked += pod.gpus * pod.gpu_milli
        before, x = x, round(asked / cluster.gpus / 10)
        for passed in (point for point in XS if before < point < x):
            readings[passed] = [read()]
        job = Job(number, float(number), float("inf"), (pod,), communication=wires.communication)
        placed = policy.place(job)
        if placed is None and room and x <= MOVES_UNTIL_PCT:
            placed = room.made_for(job)
        arrived += pod.gpus > 0
        if placed is not None:
            found_place += pod.gpus > 0
            wires.saw(job, placed)
            for allotment in placed:
                cluster.take(allotment)
            if room:
                room.runs(job, placed)
        if x in readings:
            readings[x].append(read())
    return [
        (point, metric, mean(reading[column] for reading in found or [read()]))
        for column, metric in enumerate(METRICS)
        for point, found in readings.items()
    ]
