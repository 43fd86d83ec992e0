"""A kubelet with another root directory: it moves the socket that tells who holds devices, and never the device plugin folder."""

from typing import Any

import pytest
import yaml

from tests.cluster.binaries import kubernetes_version
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import AgentProcess
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running
from tests.manifests.helm import CHART, HelmUnavailable, helm
from tests.manifests.rendered import NAMESPACE, SCHEDULER_NAME

ROOT = "/var/lib/k0s/kubelet"


@pytest.fixture(scope="module")
def host_paths() -> dict[str, str]:
    """Return volume → path on the node, of the agent that the chart installs for such kubelets."""
    settings = ("image.repository=gputopo", "agent.mode=enforce", f"agent.kubeletDir={ROOT}")
    values = [word for setting in settings for word in ("--set", setting)]
    try:
        rendered = helm(
            "template", "gputopo", CHART, "--namespace", NAMESPACE, "--kube-version", kubernetes_version(), *values
        )
    except HelmUnavailable as reason:
        pytest.skip(str(reason))
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(rendered))
    (agent,) = (item for item in objects if item["kind"] == "DaemonSet")
    volumes = agent["spec"]["template"]["spec"]["volumes"]
    return {volume["name"]: volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}


def test_agent_serves_a_kubelet_with_another_root_directory(
    node_cluster: GpuCluster, nodes: Nodes, host_paths: dict[str, str]
) -> None:
    """The folders that the chart mounts are the ones where this kubelet has its sockets."""
    node = nodes.one("hgx_h100", root=ROOT)
    folders = {
        "devicePlugins": host_paths["device-plugins"],
        "podResources": f"{host_paths['pod-resources']}/kubelet.sock",
    }
    AgentProcess(node, "enforce", sections={"kubelet": folders}).run()
    node.wait_allocatable(8)
    submit(node, pod("two", 2, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "two")
    assert node.held() == {("two", "main"): set(node_cluster.placement("two").containers["main"])}
