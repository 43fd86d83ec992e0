"""Kalos: gangs of 1 to 1,024 A100 of a cluster for large language models, on hosts under leaf switches or trays in racks.

Hosts have eight GPUs and hang eight to a leaf; trays have four and are eighteen to a rack, as in an NVL72.
Acme's trace (NSDI'24) as published in a converted form: `kalos*.csv` with submit_time_s, duration_s, node_num, gpu_num. The
cluster is shrunk so that gangs meet: on its real 302 hosts they hardly do. Gangs larger than the cluster are left out and
counted. Run times are the trace's; leaf switches cost nothing, they are counted. A gang that does not fit waits, and others
may pass it. Names say nothing of racks, so only policies that know racks keep gangs together: HiveD and the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.placement.cluster import Cluster, ServerSpec
from benchmarks.placement.engine import Started
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.rows import ResultRow, mean, quantile_rows, rows
from benchmarks.placement.scenarios.queueing import run_queue, times, waits_h
from benchmarks.placement.traces.files import MOST_GPUS, BadTrace, amount, read_rows, tables, whole
from topology.formats.catalog import machine

HOST_GPUS = 8
"""Of the trace."""
FILES = "kalos*.csv"
COLUMNS = ("submit_time_s", "duration_s", "node_num", "gpu_num")


@dataclass(frozen=True, slots=True)
class Hall:
    """A cluster of equal hosts under equal leaf switches."""

    hosts: int
    per_leaf: int
    machine: str


HALLS = {
    "hosts-64": Hall(64, 8, "dgx-a100"),
    "hosts-48": Hall(48, 8, "dgx-a100"),
    "nvl72-8": Hall(144, 18, "gb200-tray"),
}
"""Workload → where its gangs go. On trays of four GPUs a gang has two pods for each host of the trace."""


@dataclass(frozen=True, slots=True)
class Kalos:
    """The scenario."""

    folder: Path

    @property
    def workloads(self) -> tuple[str, ...]:
        """The clusters."""
        return tuple(HALLS)

    @property
    def policies(self) -> tuple[str, ...]:
        """HiveD and the product, which know gangs, and others that place them pod by pod."""
        return ("hived", "stock-least", "stock-most", "topo-aware", "vgpu-manager", "best-fit", "random", "gputopo")

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell of the experiment; the seed says which host hangs where, and throws the policy's dice."""
        hall = HALLS[workload]
        host = machine(hall.machine)
        everything = read_kalos(self.folder)
        jobs = [_on_hosts_of(job, len(host)) for job in everything if job.gpus <= hall.hosts * len(host)]
        random = Random(seed)  # noqa: S311 - a simulation
        places = [f"leaf-{number // hall.per_leaf:03}" for number in range(hall.hosts)]
        random.shuffle(places)
        cluster = Cluster([ServerSpec(hall.machine, host, model=hall.machine, leaf=place) for place in places])
        chosen = policy_for_pods(policy, [pod for job in jobs for pod in job.pods])(cluster, random)
        outcome = run_queue(jobs, cluster, chosen, lambda job, _: job.service_s)
        measured = times(outcome) | leaves(outcome.started, places, hall.per_leaf)
        return [
            *rows(workload, policy, seed, {"too_large": float(len(everything) - len(jobs)), **measured}),
            *quantile_rows(workload, policy, seed, "wait_h", waits_h(outcome)),
        ]


def read_kalos(folder: Path) -> list[Job]:
    """Return the gangs, oldest first; raises `BadTrace`."""
    found = tables(folder, FILES)
    if len(found) != 1:
        raise BadTrace(f"{folder} holds {len(found)} files {FILES}, one is needed")
    read = read_rows(next(iter(found.values())), COLUMNS, _gang)
    if not read:
        raise BadTrace(f"{next(iter(found.values()))} has no gang")
    ordered = sorted(read, key=lambda gang: gang[0])
    return [Job(number, arrival_s, run_s, pods) for number, (arrival_s, run_s, pods) in enumerate(ordered)]


def _gang(row: dict[str, str]) -> tuple[float, float, tuple[PodSize, ...]]:
    nodes, gpus = whole(row, "node_num", MOST_GPUS), whole(row, "gpu_num", MOST_GPUS)
    if nodes < 1 or gpus < 1 or gpus > nodes * HOST_GPUS or gpus % nodes:
        raise ValueError(f"{gpus} GPUs on {nodes} nodes")
    return amount(row, "submit_time_s"), amount(row, "duration_s"), (PodSize(gpus // nodes),) * nodes


def _on_hosts_of(job: Job, gpus: int) -> Job:
    """Return the gang with pods that are no larger than a host."""
    sizes = [min(gpus, pod.gpus - begin) for pod in job.pods for begin in range(0, pod.gpus, gpus)]
    return replace(job, pods=tuple(map(PodSize, sizes)))


def leaves(started: Sequence[Started], places: Sequence[str], per_leaf: int) -> dict[str, float]:
    """Count, for gangs of several hosts, the leaf switches they hang on beyond the fewest possible."""
    extra: list[int] = []
    for event in started:
        hosts = {allotment.node for allotment in event.placed}
        if len(hosts) > 1:
            used = {places[host] for host in hosts}
            extra.append(len(used) - -(-len(hosts) // per_leaf))
    return {
        "domain_fit_ratio": mean(float(not more) for more in extra),
        "extra_leaves_mean": mean(map(float, extra)),
        "gangs": float(len(extra)),
    }
