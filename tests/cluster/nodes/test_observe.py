"""Observe mode on real kubelets: another device plugin decides, and within seconds the cluster knows what it did."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import observing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia, wilful
from tests.cluster.nodes.pods import pod, wait_running
from tests.cluster.objects import PODS
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import decode_observed

SOON_SECONDS = 30.0
"""On a machine that does much else; the goal, and the limit with `--long`, is five seconds."""

StartPlugin = Callable[[GpuNode], object]


@pytest.fixture(params=["nvidia", "wilful"])
def start_plugin(request: pytest.FixtureRequest, built: Callable[[GoBuild], Path]) -> Iterator[StartPlugin]:
    """Return what starts NVIDIA's plugin, or one that chooses at random."""
    if request.param == "wilful":
        yield wilful
    else:
        folder = built(programs.NVIDIA)
        yield lambda node: nvidia(node, folder)


@dataclass(slots=True)
class Slowest:
    """The longest time from when pods ran until something was known of them, in seconds."""

    reported: float = 0.0
    promised: float = 0.0
    told: float = 0.0

    def take(self, node: GpuNode, cluster: GpuCluster, drifted: Mapping[str, set[str]], within_seconds: float) -> None:
        """Wait, from now, until the node's report and its ledger are true, and an event tells of each pod that drifted."""
        began = time.monotonic()

        def passed(claim: Callable[[], bool], before: float) -> float:
            eventually(claim, began + within_seconds - time.monotonic())
            return max(before, time.monotonic() - began)

        self.reported = passed(lambda: reported(node) == held(node), self.reported)
        self.promised = passed(lambda: promised(cluster) == by_uid(cluster, held(node)), self.promised)
        self.told = passed(lambda: by_uid(cluster, drifted).keys() <= corrected(cluster), self.told)


def test_i8_ledger_follows_what_the_plugin_did_and_says_so(
    node_cluster: GpuCluster,
    nodes: Nodes,
    start_plugin: StartPlugin,
    rounds: Callable[[int, int], int],
    figure: Callable[[str], None],
) -> None:
    """Whatever the plugin chooses, report, ledger, event and metric tell within seconds, and no GPU is promised twice."""
    node = nodes.one("two_islands")
    start_plugin(node)
    observing(node)
    chance, slowest, drifted = random.Random(0), Slowest(), 0
    for pair in range(4):
        names = [f"p{pair}a", f"p{pair}b"]
        node_cluster.submit(*(pod(name, chance.choice((1, 2)), schedulerName=SCHEDULER_NAME) for name in names))
        wait_running(node_cluster, *names)
        others = {name: held(node)[name] for name in names if held(node)[name] != planned(node_cluster, name)}
        slowest.take(node, node_cluster, others, rounds(30, 5))
        drifted += len(others)
        for name in sorted(held(node))[2:]:
            leave(node_cluster, node, name)
    eventually(lambda: moved(node_cluster) == drifted, SOON_SECONDS)
    assert drifted or start_plugin is not wilful, "a plugin that chooses at random has kept every plan"
    figure(
        f"observe mode, {type_of(start_plugin)}: {drifted} of 8 pods got other GPUs; known after {slowest.reported:.1f} s, "
        f"ledger true after {slowest.promised:.1f} s, events after {slowest.told:.1f} s at most (goal 5 each)"
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
        Slowest().take(node, node_cluster, {}, SOON_SECONDS)
        assert promised(node_cluster)
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
    """Return each pod's GPUs as the ledger says, by UID; one that promises a GPU twice cannot be read."""
    found: dict[str, set[str]] = {}
    for claim in cluster.ledger("n0").claims:
        found.setdefault(claim.uid, set()).add(claim.gpu)
    return found


def by_uid(cluster: GpuCluster, gpus_of_pods: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Name pods by UID."""
    return {cluster.pod(name)["metadata"]["uid"]: gpus for name, gpus in gpus_of_pods.items()}


def corrected(cluster: GpuCluster) -> set[str]:
    """Return the UIDs of the pods of which an event says that they run on other GPUs than planned."""
    return {event["involvedObject"]["uid"] for event in cluster.events("GPUPlacementCorrected")}


def moved(cluster: GpuCluster) -> float:
    """Return how many pods' claims the extender has counted as moved."""
    return cluster.extender.metric('ledger_repairs_total{kind="moved"}') or 0.0


def planned(cluster: GpuCluster, name: str) -> set[str]:
    """Return the GPUs that the pod was bound with; what is on record has been corrected since."""
    # it logs when it has answered
    (gpus,) = eventually(lambda: [call["gpus"] for call in cluster.told() if call["pod"] == f"default/{name}"])
    return set(gpus)


def leave(cluster: GpuCluster, node: GpuNode, name: str) -> None:
    """Delete a pod, and return when the kubelet and the ledger have forgotten it."""
    uid = cluster.pod(name)["metadata"]["uid"]
    cluster.delete(name)
    eventually(lambda: name not in held(node) and uid not in promised(cluster), within_seconds=30)


def type_of(start_plugin: StartPlugin) -> str:
    """Name the plugin for a person."""
    return "a plugin that chooses at random" if start_plugin is wilful else "NVIDIA's plugin"
