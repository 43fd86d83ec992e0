"""Small clusters and jobs."""

from __future__ import annotations

from benchmarks.placement.cluster import Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from topology.formats.catalog import machine


def cluster_of(*machines: str, cpu_milli: int = 96_000, memory_mib: int = 1_000_000) -> Cluster:
    """Return a cluster with one node of each machine named."""
    return Cluster([ServerSpec(name, machine(name), cpu_milli, memory_mib, name) for name in machines])


def job(
    number: int,
    *gpus: int,
    arrival_s: float = 0.0,
    service_s: float = 10.0,
    pod: PodSize | None = None,
    minimal_utility: float = 0.0,
) -> Job:
    """Return a job with one pod for each count of GPUs, or with this one."""
    pods = (pod,) if pod else tuple(PodSize(count) for count in gpus)
    return Job(number, arrival_s, service_s, pods, minimal_utility=minimal_utility)
