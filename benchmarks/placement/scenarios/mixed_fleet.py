"""A fleet of five kinds of machines from the catalogue, and jobs of 1 to 8 GPUs that any of them may run.

Arrivals are Poisson at the load named, run times exponential with a mean of an hour, sizes 1/2/4/8 at 45/20/20/15 %.
Applications send 0, 1, 5 or 12 GB per second of computing, one as likely as the other. That is the spread of Gavel's
measured ones. A GPU computes as fast on every machine, so that only links tell machines apart. Jobs that do not fit wait,
and others may pass them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Final

from benchmarks.placement.cluster import Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.rows import ResultRow, quantile_rows, rows
from benchmarks.placement.scenarios.queueing import (
    bandwidth_ratios,
    bandwidths,
    moves,
    run_queue,
    started_at_once_pct,
    times,
    waits_h,
)
from benchmarks.placement.speed import Sensitivity, SpeedModel
from topology.formats.catalog import machine
from topology.request.gpu_request import Communication

FLEET: Final[Mapping[str, int]] = MappingProxyType(
    {"dgx-1v": 6, "dgx-a100": 4, "hgx-h100": 4, "l40s-8": 6, "a100-pcie-8-pairs": 4}
)
SIZES: Final[Mapping[int, float]] = MappingProxyType({1: 0.45, 2: 0.2, 4: 0.2, 8: 0.15})
TRAFFIC_GB_PER_S = (0.0, 1.0, 5.0, 12.0)
LOADS = (0.8, 0.95)
JOBS = 3_000
BURST = 48
"""Jobs that come at once in the scenario of that name; what they ask for is two thirds of the fleet."""
NODE_GPUS = 8
CPU_MILLI_PER_GPU, MEMORY_MIB_PER_GPU = 12_000, 131_072
MEAN_RUN_S = 3600.0


@dataclass(frozen=True, slots=True)
class MixedFleet:
    """The scenario; a workload is `load-0.8/SENSITIVITY`."""

    jobs: int = JOBS
    burst: int = 1
    """Jobs that arrive at the same moment, with the last of them.

    More than one are a queue to be planned as one, or one by one.
    """

    @property
    def workloads(self) -> tuple[str, ...]:
        """Each load at each sensitivity."""
        return tuple(f"load-{load}/{how}" for load in LOADS for how in Sensitivity)

    @property
    def policies(self) -> tuple[str, ...]:
        """Those that choose nodes."""
        if self.burst > 1:
            return "stock-most", "gputopo", "gputopo-as-one"
        return (
            "stock-least", "stock-most", "hami-binpack", "vgpu-manager", "koordinator-most", "hived", "hived-links",
            "mapa-preserve", "mapa-preserve-fleet", "topo-aware", "topo-aware-links", "topo-aware-p", "best-fit", "fgd",
            "random", "gputopo",
        )  # fmt: skip

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell of the experiment."""
        load, _, sensitivity = workload.partition("/")
        random = Random(seed)  # noqa: S311 - a simulation
        servers = [
            ServerSpec(name, machine(name), NODE_GPUS * CPU_MILLI_PER_GPU, NODE_GPUS * MEMORY_MIB_PER_GPU, name)
            for name, count in FLEET.items()
            for _ in range(count)
        ]
        gpus = sum(len(server.topology) for server in servers)
        gap_s = _gpu_seconds_per_job() / (float(load.removeprefix("load-")) * gpus)
        jobs = _draw(random, self.jobs, gap_s, Sensitivity(sensitivity))
        jobs = _in_bursts(jobs, self.burst)
        random.shuffle(servers)
        cluster = Cluster(servers)
        chosen = policy_for_pods(policy, [job.pods[0] for job in jobs])(cluster, random)
        speed = SpeedModel(cluster)
        outcome = run_queue(jobs, cluster, chosen, speed.run_time)
        at_once = {"started_at_once_pct": started_at_once_pct(outcome)} if self.burst > 1 else {}
        return [
            *rows(workload, policy, seed, times(outcome) | moves(outcome) | bandwidths(outcome, speed) | at_once),
            *quantile_rows(workload, policy, seed, "wait_h", waits_h(outcome)),
            *quantile_rows(workload, policy, seed, "bandwidth_ratio", bandwidth_ratios(outcome, speed)),
        ]


def _in_bursts(jobs: list[Job], burst: int) -> list[Job]:
    return [
        replace(job, arrival_s=jobs[min(place - place % burst + burst, len(jobs)) - 1].arrival_s)
        for place, job in enumerate(jobs)
    ]


def _gpu_seconds_per_job() -> float:
    return MEAN_RUN_S * sum(size * share for size, share in SIZES.items())


def _draw(random: Random, count: int, gap_s: float, sensitivity: Sensitivity) -> list[Job]:
    """Draw the jobs; the draw is the same at every sensitivity."""
    now = 0.0
    jobs = []
    for number in range(count):
        now += random.expovariate(1 / gap_s)
        (size,) = random.choices([*SIZES], [*SIZES.values()])
        run_s, measured, utility = (
            random.expovariate(1 / MEAN_RUN_S),
            random.choice(TRAFFIC_GB_PER_S),
            random.uniform(0.3, 0.52),
        )
        sends = {Sensitivity.NONE: 0.0, Sensitivity.MEASURED: measured, Sensitivity.ALL: max(TRAFFIC_GB_PER_S)}[
            sensitivity
        ]
        pod = PodSize(size, cpu_milli=size * CPU_MILLI_PER_GPU, memory_mib=size * MEMORY_MIB_PER_GPU)
        said = Communication.HEAVY if measured >= 1 else Communication.LIGHT
        jobs.append(
            Job(number, now, run_s, (pod,), "", said, sends if size > 1 else 0.0, minimal_utility=round(utility, 1))
        )
    return jobs
