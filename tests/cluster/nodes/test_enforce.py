"""Enforce mode on real kubelets: a container gets exactly the GPUs of its placement."""

import time
from collections.abc import Callable

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME


def test_container_gets_the_planned_gpus(node_cluster: GpuCluster, nodes: Nodes) -> None:
    """From filter to the container's start: plan, ledger, kubelet, environment and CDI name the same GPUs."""
    node = nodes.one("hgx_h100")
    enforcing(node)
    submit(node, pod("four", 4, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "four")
    planned = set(node_cluster.placement("four").containers["main"])
    (started,) = [each for each in node.started() if each.pod == "four"]
    assert node.held() == {("four", "main"): planned}
    assert set(started.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == planned
    assert {name.removeprefix("nvidia.com/gpu=") for name in started.cdi_devices} == planned


def test_pod_that_came_while_the_agent_was_away_starts_soon_after_it_is_back(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """That an agent is ready is no change of its node, and would wake no pod by itself."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    agent.kill()
    eventually(lambda: not agent.is_seen_ready())
    submit(node, pod("early", 4, schedulerName=SCHEDULER_NAME))
    eventually(lambda: node_cluster.why_pending("early"))
    began = time.monotonic()
    agent.run()
    wait_running(node_cluster, "early")
    figure(f"a pod that had waited for the agent ran {time.monotonic() - began:.1f} s after it was started again")
