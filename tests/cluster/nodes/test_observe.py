"""Observe mode on real kubelets: another device plugin decides, and within seconds the cluster knows what it did."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import SCHEDULER_NAME
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import observing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia, wilful
from tests.cluster.nodes.pods import pod, wait_running
from tests.cluster.objects import PODS
from tests.cluster.polling import eventually
from topology import keys
from topology.records import decode_observed

SOON_SECONDS = 5.0

StartPlugin = Callable[[GpuNode], object]


@pytest.fixture(params=["nvidia", "wilful"])
def start_plugin(request: pytest.FixtureRequest, built: Callable[[GoBuild], Path]) -> Iterator[StartPlugin]:
    """Return what starts NVIDIA's plugin, or one that chooses at random."""
    if request.param == "wilful":
        yield wilful
    else:
        folder = built(programs.NVIDIA)
        yield lambda node: nvidia(node, folder)


def test_ledger_follows_what_the_plugin_did(
    node_cluster: GpuCluster, nodes: Nodes, start_plugin: StartPlugin, figure: Callable[[str], None]
) -> None:
    """Whatever the plugin chooses, report and ledger are true within seconds, and no GPU is ever promised or held twice."""
    node = nodes.one("two_islands")
    start_plugin(node)
    observing(node)
    chance, drifted, slowest = random.Random(0), 0, 0.0
    for number in range(8):
        name = f"p{number}"
        node_cluster.submit(pod(name, chance.choice((1, 2)), schedulerName=SCHEDULER_NAME))
        wait_running(node_cluster, name)
        began = time.monotonic()
        eventually(lambda: reported(node) == held(node), within_seconds=SOON_SECONDS)
        eventually(lambda: promised(node_cluster) == held(node), within_seconds=SOON_SECONDS)
        slowest = max(slowest, time.monotonic() - began)
        drifted += held(node)[name] != planned(node_cluster, name)
        assert all_different(held(node))
        if len(held(node)) > 3:
            leave(node_cluster, node, chance.choice(sorted(held(node))))
    figure(
        f"observe mode, {type_of(start_plugin)}: {drifted} of 8 pods got other GPUs; all known within {slowest:.1f} s"
    )


def test_c19_pods_deleted_by_force_give_their_gpus_back_soon(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """Nobody reports that their containers have stopped: the extender asks the agent, which looks at what the kubelet lists."""
    node = nodes.one("two_islands")
    wilful(node)
    observing(node)
    slowest = 0.0
    for number in range(5):
        name = f"p{number}"
        node_cluster.submit(pod(name, 2, schedulerName=SCHEDULER_NAME))
        wait_running(node_cluster, name)
        eventually(lambda: reported(node) == held(node) == promised(node_cluster) != {}, within_seconds=SOON_SECONDS)
        began = time.monotonic()
        node_cluster.api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
        eventually(lambda: promised(node_cluster) == {}, within_seconds=30)
        slowest = max(slowest, time.monotonic() - began)
    figure(
        f"C19: 5 pods deleted by force, one after the other: their GPUs were free after {slowest:.1f} s at most (goal 30)"
    )


def held(node: GpuNode) -> dict[str, set[str]]:
    """Return each pod's GPUs as the kubelet says."""
    return {pod: gpus for (pod, _), gpus in node.held().items()}


def reported(node: GpuNode) -> dict[str, set[str]]:
    """Return each pod's GPUs as the agent has published them."""
    found: dict[str, set[str]] = {}
    for gpu, holder in decode_observed(node.annotation(keys.OBSERVED) or "").gpus.items():
        found.setdefault(holder.name, set()).add(gpu)
    return found


def promised(cluster: GpuCluster) -> dict[str, set[str]]:
    """Return each pod's GPUs as the ledger says."""
    found: dict[str, set[str]] = {}
    for claim in cluster.ledger("n0").claims:
        found.setdefault(claim.name, set()).add(claim.gpu)
    return found


def planned(cluster: GpuCluster, name: str) -> set[str]:
    """Return the GPUs that the pod was bound with; what is on record has been corrected since."""
    (gpus,) = (call["gpus"] for call in cluster.told() if call["pod"] == f"default/{name}")
    return set(gpus)


def all_different(gpus_of_pods: dict[str, set[str]]) -> bool:
    """Whether no GPU is held twice."""
    return len(set().union(*gpus_of_pods.values())) == sum(map(len, gpus_of_pods.values()))


def leave(cluster: GpuCluster, node: GpuNode, name: str) -> None:
    """Delete a pod, and return when the kubelet and the ledger have forgotten it."""
    cluster.delete(name)
    eventually(lambda: name not in held(node) and name not in promised(cluster), within_seconds=30)


def type_of(start_plugin: StartPlugin) -> str:
    """Name the plugin for a person."""
    return "a plugin that chooses at random" if start_plugin is wilful else "NVIDIA's plugin"
