"""Pods that cannot run where their claims are allocated: kube-scheduler takes that back, and they are planned elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest

from benchmarks.simulated.fleet import gpu_pod
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import CLAIMS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.objects import NODES, PODS, Json
from tests.cluster.planned_claims import allocations, assert_no_gpu_twice, claiming, claims_planned, dra_node, join
from tests.cluster.polling import eventually
from tests.world.kubelets import running_kubelets

pytestmark = [pytest.mark.slow, pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")]

SETTINGS: Final = {"queue": {"enabled": True}, "dra": {"enabled": True, "deadline": "10m"}}
"""The extender itself takes nothing back meanwhile."""
CPUS: Final = 32
TOGETHER: Final = 20
"""Pods that are planned together."""
SIZES: Final = (1, 2, 4, 8, 3)
FIRST_PORT: Final = 20_000


@pytest.fixture
def cluster(binaries: Path) -> Iterator[GpuCluster]:
    """Start a control plane with planner and kube-scheduler, and twice the nodes that the pods need."""
    with (
        ControlPlane(binaries) as plane,
        running_kubelets(plane.kubeconfig()),
        claims_planned(plane, settings=SETTINGS) as started,
    ):
        join(started, *(dra_node(f"n{number}", CPUS) for number in range(24)))
        yield started


def cordon(cluster: GpuCluster, node: str, pods: Collection[str]) -> None:
    """Let nothing new be scheduled there."""
    del pods
    cluster.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})


def taint(cluster: GpuCluster, node: str, pods: Collection[str]) -> None:
    """Give the node a taint that nobody tolerates."""
    del pods
    cluster.api.patch(f"{NODES}/{node}", {"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}})


def fill(cluster: GpuCluster, node: str, pods: Collection[str]) -> None:
    """Have a pod of another scheduler that takes all CPUs."""
    del pods
    put(cluster, node, {"resources": {"requests": {"cpu": str(CPUS)}}})


def occupy(cluster: GpuCluster, node: str, pods: Collection[str]) -> None:
    """Have a pod of another scheduler that takes the host ports of these."""
    put(cluster, node, {"ports": [port(int(name.removeprefix("p"))) for name in pods]})


FAULTS: Final = (cordon, taint, fill, occupy)


def put(cluster: GpuCluster, node: str, container: Json) -> None:
    """Create a pod with such a container and bind it there, whatever else is there."""
    pod = gpu_pod(f"on-{node}", 0, schedulerName="another")
    pod["spec"]["containers"][0] |= container
    cluster.api.post(PODS, pod)
    target = {"metadata": {"name": f"on-{node}"}, "target": {"kind": "Node", "name": node}}
    cluster.api.post(f"{PODS}/on-{node}/binding", target)


def port(number: int) -> Json:
    return {"containerPort": FIRST_PORT + number, "hostPort": FIRST_PORT + number}


def planned(cluster: GpuCluster, wanted: Mapping[str, int]) -> dict[str, str]:
    """Create pods while no kube-scheduler is there; return where each is sent, once all gates are open."""
    for name, gpus in wanted.items():
        pod = claiming(name, gpus)
        pod["spec"]["containers"][0]["ports"] = [port(int(name.removeprefix("p")))]
        cluster.submit(pod)
    eventually(lambda: not any(pod["spec"].get("schedulingGates") for pod in cluster.api.list(PODS)))
    return {name: node for name, (node, _) in allocations(cluster).items()}


def run_elsewhere(cluster: GpuCluster, before: Mapping[str, str], within_seconds: float) -> float:
    """Start kube-scheduler; return after how long all pods run, on other nodes and with their own GPUs."""
    cluster.plane.start_scheduler()
    began = time.monotonic()

    def all_run() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in cluster.api.list(PODS)}
        return all(pods[name]["status"].get("phase") == "Running" for name in before)

    eventually(all_run, within_seconds)
    seconds = time.monotonic() - began
    given = allocations(cluster)
    assert_no_gpu_twice(given)
    for name, node in before.items():
        assert cluster.node_of(name) == given[name][0] != node
        assert cluster.claims(given[name][0], name) == given[name][1]
    return seconds


def tidy(cluster: GpuCluster) -> None:
    """Remove pods and faults."""
    cluster.plane.stop_schedulers()
    cluster.api.delete(PODS)  # by its kubelet: GPUs of a pod that is deleted at once are kept for a while
    for node in cluster.api.list(NODES):
        cluster.api.patch(f"{NODES}/{node['metadata']['name']}", {"spec": {"unschedulable": None, "taints": None}})
    eventually(lambda: not cluster.api.list(CLAIMS))
    eventually(lambda: not any(cluster.ledger(node["metadata"]["name"]).claims for node in cluster.api.list(NODES)))


def test_pods_that_cannot_run_where_they_are_planned_run_elsewhere_soon(
    cluster: GpuCluster,
    rounds: Callable[[int, int], int],
    goal: Callable[[float], float],
    figure: Callable[[str], None],
) -> None:
    """Cordoned, tainted, full of other pods, a host port taken: all of that after the plan, before kube-scheduler's look."""
    count, slowest = rounds(1, 10), 0.0
    faults = cycle(FAULTS)
    for number in range(count):
        cluster.plane.stop_schedulers()
        names = [f"p{at}" for at in range(TOGETHER * number, TOGETHER * (number + 1))]
        wanted = {name: SIZES[at % len(SIZES)] for at, name in enumerate(names)}
        before = planned(cluster, wanted)
        for node in sorted(set(before.values())):
            next(faults)(cluster, node, [name for name, home in before.items() if home == node])
        slowest = max(slowest, run_elsewhere(cluster, before, goal(10.0)))
        tidy(cluster)
    assert (cluster.extender.metric('dra_allocations_total{outcome="undone"}') or 0) >= count * TOGETHER
    moved = count * TOGETHER
    figure(f"{moved} of {moved} pods undone by kube-scheduler and planned elsewhere; they ran within {slowest:.1f} s")
