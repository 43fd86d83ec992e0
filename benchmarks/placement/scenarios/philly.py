"""Philly's jobs on a cluster of V100 cube-mesh machines that is just large enough, with applications of Gavel's measured kinds.

Arrivals, GPUs and run times are the trace's. Which application a job trains nobody has published. So it is drawn from
those that Gavel measured, with the seed. The seed also leaves a few jobs out. Once jobs queue, one more or less changes
whose turn it is and all that follows. So one trace as it is would be one throw of the dice. The number of nodes follows
from the load: GPU time asked for over the window, over the GPUs there are. Jobs of more than eight GPUs are gangs of pods
of eight and one with the rest. A job that does not fit waits, and others may pass it, as in kube-scheduler. Nodes have
100 Gb/s to each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from benchmarks.placement.cluster import Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.rows import ResultRow, quantile_rows, rows
from benchmarks.placement.scenarios.queueing import bandwidth_ratios, bandwidths, moves, run_queue, times, waits_h
from benchmarks.placement.speed import Sensitivity, SpeedModel
from benchmarks.placement.traces.files import BadTrace
from benchmarks.placement.traces.gavel import read_traffic
from benchmarks.placement.traces.philly import PhillyJob, read_philly
from topology.formats.catalog import machine
from topology.request.gpu_request import Communication

MACHINE = "dgx-1v"
NODE_GPUS = 8
CPU_MILLI_PER_GPU, MEMORY_MIB_PER_GPU = 10_000, 61_440
NETWORK_GB_PER_S = 12.5
LOADS = (0.8, 1.0, 1.1)
WEEKS = {"ee9e8c": (0, 13), "all": (4, 2)}
"""Virtual cluster → first week of the trace, and how many; `all` is the first half of October 2017, or a shorter trace whole."""
WEEK_S = 7 * 86_400.0
TALKATIVE = 1.0
"""GB per second of computing from which on an owner would call the job `heavy`."""
LEFT_OUT = 0.02
"""Of the jobs, drawn with the seed."""
UTILITIES = (0.30, 0.41, 0.52)
"""Least utilities that owners ask of TOPO-AWARE-P: the ends and the middle of its authors' range."""
SAID = "-said"
"""Ends the name of a sensitivity at which owners say that their jobs do not communicate.

In the others those of applications that would are called heavy though links may cost them nothing."""


@dataclass(frozen=True, slots=True)
class Philly:
    """The scenario; a workload is `VC/load-LOAD/SENSITIVITY`, or `VC/load-1.0/none-said`."""

    folder: Path
    throughputs: Path

    @property
    def workloads(self) -> tuple[str, ...]:
        """Each virtual cluster that the trace has at each load and sensitivity."""
        there = {"all", *(job.cluster for job in read_philly(self.folder))}
        vcs = [vc for vc in WEEKS if vc in there]
        return (
            *(f"{vc}/load-{load}/{how}" for vc in vcs for load in LOADS for how in Sensitivity),
            *(f"{vc}/load-1.0/{Sensitivity.NONE}{SAID}" for vc in vcs),
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """Those that choose nodes."""
        return (
            "stock-least", "stock-most", "hami-binpack", "vgpu-manager", "hived", "hived-links", "mapa-preserve",
            "mapa-preserve-fleet", "topo-aware", "topo-aware-links", "topo-aware-p", "best-fit", "fgd", "random", "gputopo",
        )  # fmt: skip

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell of the experiment."""
        vc, load, how = workload.split("/")
        random = Random(seed)  # noqa: S311 - a simulation
        jobs = self.jobs(vc, Sensitivity(how.removesuffix(SAID)), random)
        if how.endswith(SAID):
            jobs = [replace(job, communication=Communication.NONE) for job in jobs]
        if not jobs or jobs[0].arrival_s == jobs[-1].arrival_s:
            raise BadTrace(f"{self.folder}: too few jobs of {vc!r}")
        nodes = nodes_for(jobs, float(load.removeprefix("load-")))
        server = ServerSpec(
            MACHINE, machine(MACHINE), NODE_GPUS * CPU_MILLI_PER_GPU, NODE_GPUS * MEMORY_MIB_PER_GPU, MACHINE
        )
        cluster = Cluster([server] * nodes)
        chosen = policy_for_pods(policy, [pod for job in jobs for pod in job.pods])(cluster, random)
        speed = SpeedModel(cluster, NETWORK_GB_PER_S)
        outcome = run_queue(jobs, cluster, chosen, speed.run_time)
        measured = times(outcome) | moves(outcome) | bandwidths(outcome, speed)
        return [
            *rows(workload, policy, seed, {"nodes": float(nodes), **measured}),
            *quantile_rows(workload, policy, seed, "wait_h", waits_h(outcome)),
            *quantile_rows(workload, policy, seed, "bandwidth_ratio", bandwidth_ratios(outcome, speed)),
        ]

    def jobs(self, vc: str, sensitivity: Sensitivity, random: Random) -> list[Job]:
        """Return the jobs of the window less some, with applications drawn; the draw is the same at every sensitivity."""
        traffic = _traffic(self.throughputs)
        applications = sorted({application for application, _ in traffic})
        most = max(traffic.values())
        found = []
        for number, row in enumerate(_window(self.folder, vc)):
            application, utility = random.choice(applications), random.choice(UTILITIES)
            if random.random() < LEFT_OUT:
                continue
            measured = traffic.get((application, _measured_size(row.gpus)), 0.0) if row.gpus > 1 else 0.0
            sends = {Sensitivity.NONE: 0.0, Sensitivity.MEASURED: measured, Sensitivity.ALL: most}[sensitivity]
            found.append(
                Job(
                    number,
                    row.arrival_s,
                    max(row.duration_s, 1.0),
                    pods_of(row.gpus),
                    application,
                    Communication.HEAVY if measured >= TALKATIVE else Communication.LIGHT,
                    sends if row.gpus > 1 else 0.0,
                    utility,
                )
            )
        return found


def pods_of(gpus: int) -> tuple[PodSize, ...]:
    """Return pods of whole nodes, and one with the rest."""
    sizes = [NODE_GPUS] * (gpus // NODE_GPUS) + ([gpus % NODE_GPUS] if gpus % NODE_GPUS else [])
    return tuple(
        PodSize(size, cpu_milli=size * CPU_MILLI_PER_GPU, memory_mib=size * MEMORY_MIB_PER_GPU) for size in sizes
    )


def nodes_for(jobs: list[Job], load: float) -> int:
    """Return how many nodes the jobs would keep busy at this load, at least enough for the largest."""
    window_s = jobs[-1].arrival_s - jobs[0].arrival_s
    demand = sum(job.gpus * job.service_s for job in jobs) / window_s
    return max(round(demand / load / NODE_GPUS), *(len(job.pods) for job in jobs))


def _measured_size(gpus: int) -> int:
    return max(size for size in (2, 4, 8) if size <= gpus)


@cache
def _window(folder: Path, vc: str) -> tuple[PhillyJob, ...]:
    jobs = read_philly(folder)
    first, weeks = WEEKS[vc]
    begin_s = jobs[0].arrival_s + first * WEEK_S
    in_time = [job for job in jobs if begin_s <= job.arrival_s < begin_s + weeks * WEEK_S]
    return tuple(job for job in in_time or jobs if vc in (job.cluster, "all"))


@cache
def _traffic(path: Path) -> dict[tuple[str, int], float]:
    return read_traffic(path)
