"""FGD's inflation experiment with the real extender: each pod that comes is filtered and bound over HTTP, as by kube-scheduler.

The extender runs as a process of its own against an API double. A simulated cluster counts CPU, memory and models first, as
kube-scheduler's own filters do, and takes in what was bound where. Pods without GPUs do not come to an extender, so they are left
out, for the simulator's policies too. All run on the same nodes, some of the trace's, with the same pods in the same order.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec

from benchmarks.placement.cluster import Allotment, Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.rows import ResultRow
from benchmarks.placement.scenarios.inflation import inflated
from benchmarks.placement.traces.openb import OpenbTrace
from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.extender_process import running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.served.objects import node_of, pod_of
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from topology.annotations import keys
from topology.annotations.records import decode_placement
from topology.value.fragmentation import WHOLE_GPU_MILLI

SERVED = "extender"
POLICIES = ("gputopo", "fgd", "best-fit")
_ATTEMPTS = 5
_SETTINGS = {"scheduling": {"appraiseAfter": "10ms"}}
"""All pods come within seconds: an extender that has just started would meet most before it knows what GPUs are worth."""
_HEARD_SECONDS = 0.02
"""From a pod's creation to the first call: kube-scheduler hears of it by a watch, as the extender does, which learns from it."""
_PODS = "/api/v1/namespaces/default/pods"


class ExtenderRefused(Exception):
    """The extender answered in a way that kube-scheduler treats as a failure."""


@dataclass(frozen=True, slots=True)
class ReplayTrace:
    """Nodes, and the pods that come to them."""

    servers: tuple[ServerSpec, ...]
    arrivals: tuple[PodSize, ...]
    kinds: tuple[PodSize, ...]
    """All pods of the workload, for policies that are told beforehand."""


def course_of(trace: OpenbTrace, workload: str, nodes: int, seed: int) -> ReplayTrace:
    """Return so many of the trace's nodes, evenly spread over its list, and pods that ask for 130 % of their GPUs."""
    random = Random(seed)  # noqa: S311 - a simulation
    every = trace.servers()
    servers = [every[len(every) * place // nodes] for place in range(nodes)]
    pods = tuple(pod for pod in trace.pods(workload) if pod.gpus)
    arrivals = inflated(pods, sum(len(server.topology) for server in servers), random)
    random.shuffle(servers)
    return ReplayTrace(tuple(servers), tuple(arrivals), pods)


def simulate(course: ReplayTrace, policy: str, seed: int) -> float:
    """Return the share of all GPUs that are allocated in the end, in percent, by a policy of the simulator."""
    cluster = Cluster(course.servers)
    chosen = policy_for_pods(policy, course.kinds)(cluster, Random(seed))  # noqa: S311 - a simulation
    for number, pod in enumerate(course.arrivals):
        for allotment in chosen.place(Job(number, float(number), float("inf"), (pod,))) or ():
            cluster.take(allotment)
    return _allocated(cluster)


def serve(course: ReplayTrace) -> float:
    """Return the same of the extender; raises `ExtenderRefused`, `NotReady`."""
    with tempfile.TemporaryDirectory(prefix="gputopo-served-") as folder:
        return asyncio.run(_serve(course, Path(folder)))


def rows_of(workload: str, seed: int, found: Sequence[tuple[str, float]]) -> list[ResultRow]:
    """Return what policies allocated as rows of the inflation experiment."""
    return [ResultRow(workload, policy, seed, "allocation_pct", 130.0, value) for policy, value in found]


async def _serve(course: ReplayTrace, folder: Path) -> float:
    cluster = Cluster(course.servers)
    names = [f"n{node.index:04}" for node in cluster.nodes]
    kubeconfig = folder / "kubeconfig"
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        write_kubeconfig(kubeconfig, server.url)
        for name, bought in zip(names, course.servers, strict=True):
            (await api.call("POST", "/api/v1/nodes", node_of(name, bought))).ok()
        async with running_extender(kubeconfig, folder, _SETTINGS) as extender, aiohttp.ClientSession() as session:
            verbs = _Verbs(session, f"{extender.url}/v1/extender")
            for number, pod in enumerate(course.arrivals):
                await _place(api, verbs, cluster, names, f"pod-{number}", pod)
    return _allocated(cluster)


@dataclass(frozen=True, slots=True)
class _Verbs:
    """The extender, as kube-scheduler calls it."""

    session: aiohttp.ClientSession
    url: str

    async def call(self, verb: str, body: Json) -> Any:
        """Return the answer to one call."""
        async with self.session.post(f"{self.url}/{verb}", data=msgspec.json.encode(body)) as response:
            content = await response.read()
        if response.status != 200:
            raise ExtenderRefused(f"{verb}: {response.status} {content[:200]!r}")
        answer = msgspec.json.decode(content)
        if isinstance(answer, dict) and answer.get("Error"):
            raise ExtenderRefused(f"{verb}: {answer['Error']}")
        return answer


async def _place(
    api: ApiClient, verbs: _Verbs, cluster: Cluster, names: Sequence[str], name: str, pod: PodSize
) -> None:
    """Schedule one pod, again where a bind fails, as kube-scheduler would; one that finds no place is gone."""
    made = (await api.call("POST", _PODS, pod_of(name, pod))).ok()
    await asyncio.sleep(_HEARD_SECONDS)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            await _try(api, verbs, cluster, names, made, pod)
        except ExtenderRefused:
            if attempt == _ATTEMPTS:
                raise
        else:
            return


async def _try(api: ApiClient, verbs: _Verbs, cluster: Cluster, names: Sequence[str], made: Json, pod: PodSize) -> None:
    """Schedule it once, and take what it got from the simulated cluster."""
    name = made["metadata"]["name"]
    fitting = [names[node.index] for node in cluster.nodes if node.fits_beside_gpus(pod)]
    answer = await verbs.call("filter", {"Pod": made, "Nodes": None, "NodeNames": fitting}) if fitting else {}
    passed = answer.get("NodeNames") or []
    if not passed:
        await api.call("DELETE", f"{_PODS}/{name}")
        return
    scores = await verbs.call("prioritize", {"Pod": made, "Nodes": None, "NodeNames": passed})
    best = max(scores, key=lambda entry: entry["Score"])["Host"]
    who = {"PodName": name, "PodNamespace": "default", "PodUID": made["metadata"]["uid"]}
    await verbs.call("bind", {**who, "Node": best})
    bound = (await api.call("GET", f"{_PODS}/{name}")).ok()
    placed = decode_placement(bound["metadata"]["annotations"][keys.PLACEMENT])
    (gpus,) = placed.containers.values()
    cluster.take(Allotment(names.index(best), tuple(int(gpu.rpartition("-")[2]) for gpu in gpus), pod))


def _allocated(cluster: Cluster) -> float:
    return 100 * (1 - cluster.free_gpu_milli / (cluster.gpus * WHOLE_GPU_MILLI))
