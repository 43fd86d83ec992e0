"""MAPA's experiment: jobs of 2 to 5 GPUs queue before one server, first come, first served, and the head of the queue blocks.

As in its job generator, all jobs are there from the start. GPUs are uniform in 2..5, service is uniform in 5..24, and the
network is one of six. Four of them count as sensitive to bandwidth. Of the six, AlexNet and GoogLeNet have measured
slow-downs across links: 1.25 and 1.03. The source is Amaral, SC'17: two P100 over NVLink against over the CPU bus, batch
1. The sensitive ones are taken to send as much as AlexNet, the others as GoogLeNet.

Speed-ups are job by job, over the same job under first fit (MAPA's `baseline`) in a run of its own. Of a policy under which a job
waits for ever, as MAPA-preserve's may over PCIe, there is `jobs_run` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from types import MappingProxyType
from typing import Final

from benchmarks.placement.baselines import mapa
from benchmarks.placement.cluster import Cluster, ServerSpec
from benchmarks.placement.engine import Discipline, Started, simulate
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.rows import ResultRow, mean, quantile, rows
from benchmarks.placement.scenarios.mapa_servers import SERVERS
from benchmarks.placement.speed import Sensitivity, SpeedModel, traffic_from
from topology.node.model import NodeTopology
from topology.request.gpu_request import Communication

JOBS = 300
FIRST_FIT = "mapa-baseline"
NETWORKS: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "AlexNet": True,
        "Inception-v3": True,
        "ResNet-50": True,
        "VGG-16": True,
        "GoogLeNet": False,
        "CaffeNet": False,
    }
)
"""Whether MAPA counts it as sensitive to bandwidth."""
_NEAR_GB_PER_S, _FAR_GB_PER_S = 36.0, 12.0
"""Two NVLinks of P100, and the bus between POWER8 sockets: what the product's bandwidth model says of them, rounded."""
ALEXNET_GB_PER_S: Final = traffic_from(1.249, _NEAR_GB_PER_S, _FAR_GB_PER_S)
GOOGLENET_GB_PER_S: Final = traffic_from(1.03, _NEAR_GB_PER_S, _FAR_GB_PER_S)


@dataclass(frozen=True, slots=True)
class OneServer:
    """The scenario; a workload is `SERVER/SENSITIVITY`."""

    jobs: int = JOBS

    @property
    def workloads(self) -> tuple[str, ...]:
        """Each server at each sensitivity."""
        return tuple(f"{server}/{sensitivity}" for server in SERVERS for sensitivity in Sensitivity)

    @property
    def policies(self) -> tuple[str, ...]:
        """MAPA's four, and the rules that choose GPUs on a node."""
        return (
            FIRST_FIT, "mapa-topo-aware", "mapa-greedy", "mapa-preserve", "mapa-preserve-yielding", "stock-least",
            "hami-binpack", "vgpu-manager", "koordinator", "hived", "hived-links", "topo-aware", "topo-aware-links",
            "gputopo", "gputopo-required",
        )  # fmt: skip

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell of the experiment."""
        first_fit, found = (_run(workload, self.jobs, name, seed) for name in (FIRST_FIT, policy))
        return rows(workload, policy, seed, _measured(first_fit, found))


def mapa_jobs(random: Random, count: int, sensitivity: Sensitivity) -> list[Job]:
    """Draw the jobs; sizes, times and networks are the same at every sensitivity."""
    jobs = []
    for number in range(count):
        gpus, service_s = random.randint(2, 5), float(random.randint(5, 24))
        network = random.choice([*NETWORKS])
        traffic = {
            Sensitivity.NONE: 0.0,
            Sensitivity.MEASURED: ALEXNET_GB_PER_S if NETWORKS[network] else GOOGLENET_GB_PER_S,
            Sensitivity.ALL: ALEXNET_GB_PER_S,
        }[sensitivity]
        said = Communication.HEAVY if NETWORKS[network] else Communication.LIGHT
        jobs.append(Job(number, 0.0, service_s, (PodSize(gpus),), network, said, traffic))
    return jobs


@dataclass(frozen=True, slots=True)
class _Found:
    """What became of the jobs that ran, by number."""

    run_time_s: Mapping[int, float]
    slow_down: Mapping[int, float]
    bandwidth_gb_per_s: Mapping[int, float]
    mapa_gb_per_s: Mapping[int, float]
    makespan_s: float


@lru_cache(maxsize=2)
def _run(workload: str, count: int, policy: str, seed: int) -> _Found:
    """Run one policy; first fit, beside which every other is put, is remembered from one to the next."""
    server, _, sensitivity = workload.partition("/")
    node = _server(server)
    jobs = mapa_jobs(Random(seed), count, Sensitivity(sensitivity))  # noqa: S311 - a simulation
    cluster = Cluster([ServerSpec("server", node)])
    speed = SpeedModel(cluster)
    chosen = policy_for_pods(policy, [job.pods[0] for job in jobs])(cluster, Random(seed))  # noqa: S311
    events = simulate(jobs, cluster, chosen, Discipline.BLOCK, speed.run_time)
    started = {event.job.number: event for event in events if isinstance(event, Started)}
    run_time_s = {number: speed.run_time(event.job, event.placed) for number, event in started.items()}
    links = mapa.links_of(node)
    return _Found(
        run_time_s,
        {number: run_time_s[number] / event.job.service_s for number, event in started.items()},
        {number: speed.bandwidth(event.placed) for number, event in started.items()},
        {number: links.best_predicted(event.placed[0].gpus) for number, event in started.items()},
        max((event.time_s + run_time_s[number] for number, event in started.items()), default=0.0),
    )


def _measured(first_fit: _Found, found: _Found) -> dict[str, float]:
    run = {"jobs_run": float(len(found.run_time_s))}
    if len(found.run_time_s) < len(first_fit.run_time_s):
        return run  # the rest waits for ever, and the few that ran say nothing of it
    gains = [seconds / found.run_time_s[number] for number, seconds in first_fit.run_time_s.items()]
    return {
        **run,
        **{f"speed_up_p{percent}": quantile(gains, percent / 100) for percent in (0, 25, 50, 75, 100)},
        "speed_up_mean": mean(gains),
        "worst_slow_down": max(found.slow_down.values(), default=float("nan")),
        "worst_slow_down_first_fit": max(first_fit.slow_down.values(), default=float("nan")),
        "mean_slow_down": mean(found.slow_down.values()),
        "mean_bandwidth_gb_per_s": mean(found.bandwidth_gb_per_s.values()),
        "mean_mapa_effective_gb_per_s": mean(found.mapa_gb_per_s.values()),
        "makespan_s": found.makespan_s,
    }


@cache
def _server(name: str) -> NodeTopology:
    return SERVERS[name]()
