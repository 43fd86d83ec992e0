"""Ten nodes of one link graph, jobs of 1, 2 and 4 GPUs that come and go, no queue.

It shows what it is worth to look at links.

Arrivals are Poisson, holding times exponential with mean 1, sizes 1/2/4 at 40/35/25 %. The load is what is offered: GPUs asked
for on average, over those there are. CPU and memory are asked for in step with the GPUs and never decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from random import Random

from benchmarks.placement.cluster import Cluster, ServerSpec
from benchmarks.placement.engine import Discipline, Event, JobRefused, Moved, Started, simulate
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import MOVING, policy_for_pods
from benchmarks.placement.rows import ResultRow, mean, rows
from benchmarks.placement.speed import measure_of
from topology.bandwidth.rings import members_of
from topology.formats.catalog import machine
from topology.node.model import NodeTopology
from topology.placement.topology_class import TopologyClass

NODES = 10
ARRIVALS = 6_000
SIZES = {1: 0.40, 2: 0.35, 4: 0.25}
LOADS = (0.82, 1.01)
MACHINES = ("dgx-1v", "dgx-1p", "a100-pcie-8-pairs", "l40s-8", "hgx-h100")
CPU_MILLI_PER_GPU = 12_000
MEMORY_MIB_PER_GPU = 131_072
HOUR = 1.0
"""Of simulated time: a mean job takes one."""


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """The scenario; a workload is `MACHINE/load-0.82`."""

    arrivals: int = ARRIVALS

    @property
    def workloads(self) -> tuple[str, ...]:
        """The published one first."""
        return tuple(f"{name}/load-{load}" for name in MACHINES for load in LOADS)

    @property
    def policies(self) -> tuple[str, ...]:
        """Those that choose nodes."""
        return (
            "stock-least-plain", "stock-least", "stock-most-plain", "stock-most", "hami-binpack", "vgpu-manager",
            "koordinator", "koordinator-most", "hived", "hived-links", "mapa-greedy", "mapa-preserve", "mapa-preserve-fleet",
            "topo-aware", "topo-aware-links", "gputopo", "gputopo-told", *MOVING,
        )  # fmt: skip

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell of the experiment."""
        name, _, load = workload.partition("/load-")
        node = machine(name)
        random = Random(seed)  # noqa: S311 - a simulation
        jobs = poisson_jobs(random, self.arrivals, float(load), NODES * len(node))
        size = len(node)
        server = ServerSpec(name, node, size * CPU_MILLI_PER_GPU, size * MEMORY_MIB_PER_GPU)
        cluster = Cluster([server] * NODES)
        chosen = policy_for_pods(policy, [job.pods[0] for job in jobs], HOUR)(cluster, random)
        events = simulate(jobs, cluster, chosen, Discipline.REFUSE, lambda job, _: job.service_s)
        return rows(workload, policy, seed, _measured(events, measure_of(node)))


def poisson_jobs(random: Random, arrivals: int, load: float, gpus: int) -> list[Job]:
    """Draw the jobs that offer this load to so many GPUs."""
    gpus_per_job = sum(size * share for size, share in SIZES.items())
    gap = gpus_per_job / (load * gpus)
    now = 0.0
    jobs = []
    for number in range(arrivals):
        now += random.expovariate(1 / gap)
        (size,) = random.choices([*SIZES], [*SIZES.values()])
        pod = PodSize(size, cpu_milli=size * CPU_MILLI_PER_GPU, memory_mib=size * MEMORY_MIB_PER_GPU)
        jobs.append(Job(number, now, random.expovariate(1.0), (pod,)))
    return jobs


def _measured(events: Iterable[Event], topology_class: TopologyClass) -> dict[str, float]:
    """Count, for each size of job, the losses and how good the sets were: those of the first places, not where jobs moved to."""
    node = topology_class.node
    whole = (1 << len(node)) - 1
    lost: Counter[int] = Counter()
    moved = 0
    work = again = 0.0
    placed: dict[int, list[int]] = {size: [] for size in SIZES}
    for event in events:
        if isinstance(event, JobRefused):
            lost[event.job.gpus] += 1
        elif isinstance(event, Started):
            placed[event.job.gpus].append(event.placed[0].mask)
            work += event.job.gpus * event.job.service_s
        elif isinstance(event, Moved):
            moved += 1
            again += event.move.running.job.gpus * event.again_s
    measured: dict[str, float] = {
        "moved": float(moved),
        "gpu_h_served": work,
        "gpu_h_again": again,
        "gpu_h_net": work - again,
    }
    for size, masks in placed.items():
        measured[f"lost_{size}"] = float(lost[size])
        if size > 1:
            best = max(topology_class.predict(mask)[0].point for mask in topology_class.subsets(whole, size))
            measured[f"clique_ratio_{size}"] = mean(float(_is_clique(node, mask)) for mask in masks)
            measured[f"bandwidth_ratio_{size}"] = mean(topology_class.predict(mask)[0].point / best for mask in masks)
    return measured


def _is_clique(node: NodeTopology, mask: int) -> bool:
    """Whether every two of the GPUs have an NVLink between them."""
    return all(node.nvlinks(i, j) for i, j in combinations(members_of(mask), 2))
