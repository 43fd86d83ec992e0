"""What the agent tells of GPUs on a real kubelet: who holds them, and nothing that DCGM exporter tells already."""

from __future__ import annotations

import re

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import AgentProcess, observing
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import bound_pod, is_running, pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME

METRICS = {"interval": "1s", "holders": True}


def holders(agent: AgentProcess) -> set[tuple[str, ...]]:
    """Return container, namespace, pod and UUID of each."""
    series = r'^gputopo_gpu_holder_info{container="(.*)",namespace="(.*)",pod="(.*)",uuid="(.*)"} 1.0$'
    return set(re.findall(series, agent.metrics(), re.MULTILINE))


def sampled(agent: AgentProcess) -> bool:
    return "\ngputopo_gpu_memory_used_bytes{" in agent.metrics()


def test_holders_are_those_that_the_kubelet_lists(node_cluster: GpuCluster, nodes: Nodes) -> None:
    """From when a container runs until its pod is gone."""
    node = nodes.one("two_islands")
    wilful(node)
    agent = observing(node, metrics=METRICS)
    eventually(lambda: sampled(agent))
    assert holders(agent) == set()
    node_cluster.submit(pod("pair", 2, 1, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "pair")
    listed = {(container, "default", name, gpu) for (name, container), gpus in node.held().items() for gpu in gpus}
    assert len(listed) == 3
    eventually(lambda: holders(agent) == listed)
    node_cluster.delete("pair")
    eventually(lambda: holders(agent) == set())


def test_what_dcgm_exporter_tells_is_left_to_it(nodes: Nodes) -> None:
    """Its pod has no GPU, and the kubelet lists it all the same; health and holders are told in any case."""
    node = nodes.one("two_islands")
    wilful(node)
    submit(node, bound_pod(node, "nvidia-dcgm-exporter-x7k2p", 0))
    eventually(lambda: is_running(node, "nvidia-dcgm-exporter-x7k2p"))
    agent = observing(node, metrics=METRICS)
    eventually(lambda: any(line.get("msg") == "DCGM exporter tells of these GPUs" for line in agent.logged()))
    eventually(lambda: not sampled(agent))
    assert "\ngputopo_gpu_health{" in agent.metrics()
