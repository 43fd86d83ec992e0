"""Small clusters and jobs."""

from __future__ import annotations

from benchmarks.placement.cluster import Cluster, Server
from benchmarks.placement.jobs import Job, Pod
from topology.catalog import machine


def cluster_of(*machines: str, cpu_milli: int = 96_000, memory_mib: int = 1_000_000) -> Cluster:
    """Return a cluster with one node of each machine named."""
    return Cluster([Server(name, machine(name), cpu_milli, memory_mib, name) for name in machines])


def job(number: int, *gpus: int, arrival_s: float = 0.0, service_s: float = 10.0) -> Job:
    """Return a job with one pod for each count of GPUs."""
    return Job(number, arrival_s, service_s, tuple(Pod(count) for count in gpus))
