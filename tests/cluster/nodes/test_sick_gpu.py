"""A GPU falls sick under a pod, on a real kubelet: node and pod are told by the real programs, and the pod goes on."""

import time
from collections.abc import Callable

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME


def test_node_and_pod_are_told_of_a_gpu_that_falls_sick(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """From the driver's critical error to both events; the way back is told on the node."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    submit(node, pod("four", 4, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "four")
    held = node_cluster.placement("four").containers["main"]
    sick = node.machine.uuids.index(held[0])

    began = time.monotonic()
    node.machine.xid(gpu=sick, number=74)
    [on_node] = eventually(lambda: node_cluster.events("GPUQuarantined"))
    [on_pod] = eventually(lambda: node_cluster.events("GPUSick"))
    figure(f"node and pod heard of a sick GPU {time.monotonic() - began:.1f} s after its critical error")
    assert on_node["involvedObject"]["kind"] == "Node"
    assert on_node["message"].startswith(f"GPU {sick} (GPU-")
    assert "takes no new pods: xid 74. Next: it opens by itself" in on_node["message"]
    assert on_pod["involvedObject"]["name"] == "four"
    assert f"GPU {sick} (GPU-" in on_pod["message"]
    [back] = eventually(lambda: node_cluster.events("GPUProbation"))
    assert back["type"] == "Normal"
    assert node_cluster.is_running("four")
    assert 'gputopo_agent_health_changes_total{state="probation"} 1.0' in agent.metrics()
