"""Enforce mode on real kubelets: a container gets exactly the GPUs of its placement."""

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import SCHEDULER_NAME
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running


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
