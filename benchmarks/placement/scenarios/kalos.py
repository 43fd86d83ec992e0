"""Kalos: gangs of 1 to 1,024 A100 of a cluster for large language models, on hosts of eight that hang eight to a leaf switch.

Acme's trace (NSDI'24) as published in a converted form: `kalos*.csv` with submit_time_s, duration_s, node_num, gpu_num. The
cluster is shrunk so that gangs meet: on its real 302 hosts they hardly do. Gangs larger than the cluster are left out and
counted. Run times are the trace's; leaf switches cost nothing, they are counted. A gang that does not fit waits, and others
may pass it. Names say nothing of racks, so only policies that know racks keep gangs together: HiveD and the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.placement.cluster import Cluster, Server
from benchmarks.placement.engine import Started
from benchmarks.placement.jobs import Job, Pod
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.rows import Row, mean, rows
from benchmarks.placement.scenarios.queueing import run_queue, times
from benchmarks.placement.traces.files import BadTrace, read_rows, tables
from topology.catalog import machine

HOSTS = (64, 48)
HOSTS_PER_LEAF = 8
HOST_GPUS = 8
COLUMNS = ("submit_time_s", "duration_s", "node_num", "gpu_num")


@dataclass(frozen=True, slots=True)
class Kalos:
    """The scenario; a workload is `hosts-64`."""

    folder: Path

    @property
    def workloads(self) -> tuple[str, ...]:
        """Sizes of the cluster."""
        return tuple(f"hosts-{hosts}" for hosts in HOSTS)

    @property
    def policies(self) -> tuple[str, ...]:
        """HiveD and the product, which know gangs, and others that place them pod by pod."""
        return ("hived", "stock-least", "stock-most", "topo-aware", "vgpu-manager", "best-fit", "random", "gputopo")

    def run(self, workload: str, policy: str, seed: int) -> list[Row]:
        """Run one cell of the experiment; the seed says which host hangs where, and throws the policy's dice."""
        hosts = int(workload.removeprefix("hosts-"))
        everything = read_kalos(self.folder)
        jobs = [job for job in everything if job.gpus <= hosts * HOST_GPUS]
        random = Random(seed)  # noqa: S311 - a simulation
        places = [f"leaf-{host // HOSTS_PER_LEAF:03}" for host in range(hosts)]
        random.shuffle(places)
        cluster = Cluster([Server("a100", machine("dgx-a100"), model="A100", leaf=place) for place in places])
        chosen = policy_for_pods(policy, [pod for job in jobs for pod in job.pods])(cluster, random)
        outcome = run_queue(jobs, cluster, chosen, lambda job, _: job.service_s)
        measured = times(outcome, lambda job, _: job.service_s) | leaves(outcome.started, places)
        return rows(workload, policy, seed, {"too_large": float(len(everything) - len(jobs)), **measured})


def read_kalos(folder: Path) -> list[Job]:
    """Return the gangs, oldest first; raises `BadTrace`."""
    found = tables(folder, "kalos*.csv")
    if len(found) != 1:
        raise BadTrace(f"{folder} holds {len(found)} files kalos*.csv, one is needed")
    read = read_rows(next(iter(found.values())), COLUMNS, _gang)
    ordered = sorted(read, key=lambda gang: gang[0])
    return [Job(number, arrival_s, run_s, pods) for number, (arrival_s, run_s, pods) in enumerate(ordered)]


def _gang(row: dict[str, str]) -> tuple[float, float, tuple[Pod, ...]]:
    nodes, gpus = int(row["node_num"]), int(row["gpu_num"])
    if nodes < 1 or gpus < 1 or gpus > nodes * HOST_GPUS or gpus % nodes:
        raise ValueError(f"{gpus} GPUs on {nodes} nodes")
    return float(row["submit_time_s"]), float(row["duration_s"]), (Pod(gpus // nodes),) * nodes


def leaves(started: Sequence[Started], places: Sequence[str]) -> dict[str, float]:
    """Count, for gangs of several hosts, the leaf switches they hang on beyond the fewest possible."""
    extra: list[int] = []
    for event in started:
        hosts = {allotment.node for allotment in event.placed}
        if len(hosts) > 1:
            used = {places[host] for host in hosts}
            extra.append(len(used) - -(-len(hosts) // HOSTS_PER_LEAF))
    return {
        "domain_fit_ratio": mean(float(not more) for more in extra),
        "extra_leaves_mean": mean(map(float, extra)),
        "gangs": float(len(extra)),
    }
