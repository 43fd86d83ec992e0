"""Pollux's workloads on its own cluster of T4 machines, run times from its measured placements and from no model of ours.

Published with the artefact of Pollux (OSDI'21). `pollux_workload*.csv` has time, application, num_replicas, batch_size.
`pollux_placements_aws_t4.csv` has application, placement, local_bsz, step_time: seconds of one step for each way to
spread replicas over nodes of four T4. A replica is a pod of one GPU; no policy here is told that they belong together.
How long a job trains is not in the files. It follows from the GPU hours of its class, as the authors describe them, at
the fastest placement. Those are the middle of 0..1 for cifar10 and ncf, of 1..10 for bert and deepspeech2, of 10..100 for
yolov3. It is 100 for imagenet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

from benchmarks.placement.cluster import Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.policy import Placed
from benchmarks.placement.rows import ResultRow, mean, quantile_rows, rows
from benchmarks.placement.scenarios.queueing import run_queue, times, waits_h
from benchmarks.placement.traces.files import MOST_GPUS, BadTrace, amount, read_rows, tables, whole
from topology.formats.catalog import machine

NODES, NODE_GPUS = 16, 4
FILES = "pollux_workload_*.csv"
GPU_HOURS: Final[Mapping[str, float]] = MappingProxyType(
    {"cifar10": 0.5, "ncf": 0.5, "bert": 5.0, "deepspeech2": 5.0, "yolov3": 50.0, "imagenet": 100.0}
)
Steps = Mapping[tuple[str, str], Mapping[int, float]]
"""(application, placement) → replicas' batch size → seconds of a step."""


@dataclass(frozen=True, slots=True)
class Pollux:
    """The scenario; a workload is the number of its file."""

    folder: Path
    placements: Path

    @property
    def workloads(self) -> tuple[str, ...]:
        """All workload files."""
        found = tuple(tables(self.folder, FILES))
        if not found:
            raise BadTrace(f"{self.folder} holds no file pollux_workload_NUMBER.csv")
        return found

    @property
    def policies(self) -> tuple[str, ...]:
        """Those that choose nodes."""
        return (
            "stock-least",
            "stock-most",
            "hami-binpack",
            "hived",
            "topo-aware",
            "best-fit",
            "fgd",
            "random",
            "gputopo",
        )

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell of the experiment; the seed only throws the policy's dice."""
        jobs, batches = _jobs(tables(self.folder, FILES)[workload])
        steps = _steps(self.placements)
        cluster = Cluster([ServerSpec("t4", machine("t4-4"), 48_000, 196_608, "T4")] * NODES)
        random = Random(seed)  # noqa: S311 - a simulation
        chosen = policy_for_pods(policy, [job.pods[0] for job in jobs])(cluster, random)

        def run_time(job: Job, placed: Placed) -> float:
            return job.service_s * slow_down(steps, job, placement_of(placed), batches[job.number])

        outcome = run_queue(jobs, cluster, chosen, run_time)
        together = [event for event in outcome.started if event.job.gpus > 1]
        slowed = mean(run_time(event.job, event.placed) / event.job.service_s for event in together)
        return [
            *rows(workload, policy, seed, {**times(outcome), "run_slow_down_mean": slowed}),
            *quantile_rows(workload, policy, seed, "wait_h", waits_h(outcome)),
        ]


def placement_of(placed: Placed) -> str:
    """Return how many replicas are on each node, most first: `31` is three and one."""
    nodes = [allotment.node for allotment in placed]
    return "".join(str(nodes.count(node)) for node in sorted(set(nodes), key=lambda node: (-nodes.count(node), node)))


def slow_down(steps: Steps, job: Job, placement: str, batch: int) -> float:
    """Return the step's time over that of the fastest measured placement of so many replicas.

    A placement that was not measured counts as the measured one with as many nodes that is nearest to it, else as the slowest.
    """
    measured = {
        name: seconds
        for (application, name), by_batch in steps.items()
        if application == job.application and sum(map(int, name)) == job.gpus
        and (seconds := _nearest(by_batch, batch)) is not None
    }  # fmt: skip
    if len(measured) < 2:
        return 1.0
    if placement not in measured:
        alike = [name for name in measured if len(name) == len(placement)]
        placement = min(alike or measured, key=lambda name: (abs(int(name[0]) - int(placement[0])), -measured[name]))
    return measured[placement] / min(measured.values())


def _nearest(by_batch: Mapping[int, float], batch: int) -> float | None:
    return by_batch[min(by_batch, key=lambda size: (abs(size - batch), size))] if by_batch else None


def _jobs(path: Path) -> tuple[list[Job], dict[int, int]]:
    read = read_rows(path, ("time", "application", "num_replicas", "batch_size"), _row)
    if not read:
        raise BadTrace(f"{path} has no job")
    jobs, batches = [], {}
    for number, (arrival_s, application, replicas, batch) in enumerate(sorted(read)):
        service_s = GPU_HOURS[application] * 3600 / replicas
        jobs.append(Job(number, arrival_s, service_s, (PodSize(1, cpu_milli=4000),) * replicas, application))
        batches[number] = batch // replicas
    return jobs, batches


def _row(row: dict[str, str]) -> tuple[float, str, int, int]:
    if row["application"] not in GPU_HOURS:
        raise ValueError(f"no application {row['application']!r}")
    replicas = whole(row, "num_replicas", MOST_GPUS)
    if not replicas:
        raise ValueError("a job without replicas")
    return amount(row, "time"), row["application"], replicas, whole(row, "batch_size")


@cache
def _steps(path: Path) -> Steps:
    found: dict[tuple[str, str], dict[int, float]] = {}

    def take(row: dict[str, str]) -> None:
        name = "".join(sorted(row["placement"], reverse=True))
        if not (name.isascii() and name.isdecimal()):
            raise ValueError(f"placement {row['placement']!r} is no list of digits")
        step_s = amount(row, "step_time")
        if not step_s:
            raise ValueError("a step that takes no time")
        found.setdefault((row["application"], name), {})[whole(row, "local_bsz")] = step_s

    read_rows(path, ("application", "placement", "local_bsz", "step_time"), take)
    return found
