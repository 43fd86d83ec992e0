"""Pods that share GPUs beside pods that have whole ones, on real kubelets: exactly their plan, and true counts, through kills."""

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import recorded
from tests.cluster.nodes.agents import PATIENT, AgentProcess, enforcing, shares_gpus
from tests.cluster.nodes.churn import churn
from tests.cluster.nodes.inside import seen_inside
from tests.cluster.nodes.killer import killing
from tests.cluster.nodes.kubelet import needs_a_newer_kubelet
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, share_pod, wait_running
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.nodes.test_churn import (
    assert_amounts_kept,
    assert_none_lost,
    assert_plans_kept,
    injected_on,
    refusals,
)
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys

MACHINES = {"n0": "hgx_h100", "n1": "two_islands"}
SHARING = {"gpus": "all", "limits": "preferred"}


def sharing_agent(node: GpuNode) -> AgentProcess:
    """Start an agent that shares all GPUs of the node, and return when the cluster sees them in both forms."""
    agent = enforcing(node, PATIENT, sharing=SHARING)
    eventually(lambda: shares_gpus(node))
    return agent


def counts(node: GpuNode) -> tuple[int, int]:
    """Return how many whole GPUs and how many GiB the cluster believes that the node has to give."""
    return node.allocatable(), node.allocatable(keys.SHARE_RESOURCE)


def test_both_counts_are_true_and_follow_pods_agents_and_kubelets(
    sharing_cluster: GpuCluster, nodes: Nodes, real_runtime: Runtime, figure: Callable[[str], None]
) -> None:
    """In `node.status.allocatable`, with real containers, whose environment names the planned GPU."""
    node = nodes.one("hgx_h100", real_runtime)
    agent = sharing_agent(node)
    gpus, gib = counts(node)
    per_gpu = gib // gpus
    assert (gpus, gib) == (8, 8 * 78)

    def submit(*pods: dict[str, object]) -> None:
        sharing_cluster.submit(*pods)
        wait_running(sharing_cluster, *(each["metadata"]["name"] for each in pods), within_seconds=180)  # type: ignore[index]

    def said(whole: int, shared: int) -> Callable[[], bool]:
        return lambda: counts(node) == (gpus - shared, (gpus - whole) * per_gpu)

    submit(share_pod("a", 10, schedulerName=SCHEDULER_NAME), share_pod("b", 20, 5, schedulerName=SCHEDULER_NAME))
    began = time.monotonic()
    eventually(said(0, 1))
    took = time.monotonic() - began
    submit(pod("whole", 2, schedulerName=SCHEDULER_NAME))
    eventually(said(2, 1))
    for name, container in (("a", "main"), ("b", "main"), ("b", "c1"), ("whole", "main")):
        planned = sharing_cluster.placement(name).containers[container]
        assert set(seen_inside(node, name, container).env["NVIDIA_VISIBLE_DEVICES"].split(",")) == set(planned)
    agent.kill()
    eventually(lambda: counts(node) == (0, 0))
    agent.run()
    eventually(said(2, 1))
    node.kubelet.kill()
    node.kubelet.start()
    eventually(said(2, 1))
    sharing_cluster.delete("whole")
    eventually(said(0, 1))
    for name in "ab":
        sharing_cluster.delete(name)
    eventually(said(0, 0))
    submit(pod("all", gpus, schedulerName=SCHEDULER_NAME))
    eventually(said(gpus, 0))
    figure(
        f"a GPU that had become shared left the count of whole ones in {took:.1f} s; counts came back after each kill"
    )


def test_shares_keep_their_plans_through_kills(
    sharing_cluster: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """`kill -9` of kubelets and agents every few seconds, shares and whole GPUs mixed: exact, or refused for a known reason."""
    pods = rounds(40, 900)
    with recorded(sharing_cluster.api) as history:
        for node in nodes.start(MACHINES):
            sharing_agent(node)
        victims = [process for process in nodes.components if process.name in ("agent", "kubelet")]
        with killing(victims, random.Random(5), every_seconds=rounds(3, 5)) as died:
            told = churn(sharing_cluster, nodes, history, pods, random.Random(4), shares=0.8, until_ran=pods // 2)
    assert history.violations() == []
    kept = assert_plans_kept(told, injected_on(nodes))
    assert_amounts_kept(told)
    shares = {pod for (pod, _), _ in told.gib}
    figure(
        f"churn of {told.created} pods, whole and shared, killed {dict(Counter(died))}: {kept.words}, of them "
        f"{len(kept.pods & shares)} pods with shares; refused {refusals(told)}"
    )
    assert len(died) >= rounds(1, 10)
    assert_none_lost(told, kept.pods, ran=pods // 2)


@needs_a_newer_kubelet
def test_shares_keep_their_plans(
    sharing_cluster: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Without kills nobody is refused, whatever becomes shared, whole or free again meanwhile."""
    pods = rounds(24, 640)
    with recorded(sharing_cluster.api) as history:
        for node in nodes.start(MACHINES):
            sharing_agent(node)
        told = churn(sharing_cluster, nodes, history, pods, random.Random(6), shares=0.7)
    assert history.violations() == []
    kept = assert_plans_kept(told, injected_on(nodes))
    assert_amounts_kept(told)
    figure(f"churn of {pods} pods, whole and shared: {kept.words}; refused {refusals(told)}")
    assert told.refused == {}
    assert_none_lost(told, kept.pods, ran=0.6 * pods)
