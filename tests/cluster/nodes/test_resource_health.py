"""What a pod's own status says of its GPUs, in mode `enforce` on a real kubelet: it takes that from our device plugin."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.agent_pod import AGENT
from tests.cluster.binaries import is_oldest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, status, submit, wait_running
from tests.cluster.objects import GPU, NODES
from tests.cluster.polling import eventually
from tests.manifests.rendered import NAMESPACE, SCHEDULER_NAME
from topology.annotations import keys

RBAC = "/apis/rbac.authorization.k8s.io/v1"

knows_health = pytest.mark.skipif(
    is_oldest(), reason="kubelets before 1.36 do not tell the health of resources unasked"
)


def health(node: GpuNode, name: str) -> dict[str, str]:
    """Return GPU → health as the pod's status has it."""
    return {
        each["resourceID"]: each["health"]
        for container in status(node, name).get("containerStatuses", ())
        for resource in container.get("allocatedResourcesStatus", ())
        for each in resource["resources"]
        if resource["name"] == GPU
    }


def run(node: GpuNode, cluster: GpuCluster, name: str, gpus: int) -> list[str]:
    """Run a pod and return its GPUs; its status calls all of them healthy."""
    submit(node, pod(name, gpus, schedulerName=SCHEDULER_NAME))
    wait_running(cluster, name)
    held = [*cluster.placement(name).containers["main"]]
    eventually(lambda: health(node, name) == dict.fromkeys(held, "Healthy"))
    return held


@knows_health
def test_a_pod_says_which_of_its_gpus_is_sick(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """That one alone, for as long as it takes no new pods; its neighbours stay healthy, in this pod and in others."""
    node = nodes.one("hgx_h100")
    enforcing(node, discovery={"interval": "1s", "xidRecovery": "10s"})
    held, others = run(node, node_cluster, "four", 4), run(node, node_cluster, "two", 2)
    began = time.monotonic()
    node.machine.xid(gpu=node.machine.uuids.index(held[0]), number=74)
    eventually(lambda: health(node, "four") == {held[0]: "Unhealthy", **dict.fromkeys(held[1:], "Healthy")})
    figure(f"a pod's status called its GPU unhealthy {time.monotonic() - began:.1f} s after the critical error")
    assert health(node, "two") == dict.fromkeys(others, "Healthy")
    eventually(lambda: health(node, "four") == dict.fromkeys(held, "Healthy"))
    eventually(lambda: node_cluster.events("GPUProbation"))
    assert node_cluster.is_running("four")


@knows_health
def test_a_lost_gpu_stays_unhealthy_whoever_starts_anew(node_cluster: GpuCluster, nodes: Nodes) -> None:
    """A kubelet takes a device that is not listed any more for a healthy one, so ours is listed as long as it has a place."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    held = run(node, node_cluster, "four", 4)
    lost = node.machine.uuids.index(held[0])
    told = {held[0]: "Unhealthy", **dict.fromkeys(held[1:], "Healthy")}
    node.machine.say(f"fail nvmlDeviceGetHandleByIndex_v2 {lost} GPU_IS_LOST")
    eventually(lambda: health(node, "four") == told)
    agent.kill()
    agent.run()
    eventually(lambda: len(agent.registrations()) >= 2)
    node.wait_allocatable(7)
    assert node.plane.admin.get(f"{NODES}/{node.name}")["status"]["capacity"][GPU] == "8"
    eventually(lambda: health(node, "four") == told)
    node.machine.repair()
    eventually(lambda: health(node, "four") == dict.fromkeys(held, "Healthy"))


@contextmanager
def allowed_to_say(plane: ControlPlane) -> Iterator[None]:
    """Give the agent the right that `agent.nodeCondition` gives it (`tests/manifests/test_chart.py`)."""
    name = {"name": "says-it"}
    rules = [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **name}
    subjects = [{"kind": "ServiceAccount", "name": AGENT, "namespace": NAMESPACE}]
    plane.admin.post(f"{RBAC}/clusterroles", {"metadata": name, "rules": rules})
    plane.admin.post(f"{RBAC}/clusterrolebindings", {"metadata": name, "roleRef": role, "subjects": subjects})
    try:
        yield
    finally:
        plane.admin.delete(f"{RBAC}/clusterrolebindings/says-it")
        plane.admin.delete(f"{RBAC}/clusterroles/says-it")


def test_the_nodes_condition_stands_beside_the_kubelets(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """The kubelet writes its own every second here and leaves ours; agents that start anew write nothing."""
    node = nodes.one("hgx_h100")

    def said() -> tuple[str, str, str]:
        found = node.plane.admin.get(f"{NODES}/{node.name}")["status"]["conditions"]
        [ours] = [each for each in found if each["type"] == keys.GPUS_HEALTHY] or [{}]
        return ours.get("status", ""), ours.get("message", ""), ours.get("lastHeartbeatTime", "")

    with allowed_to_say(node.plane):
        agent = enforcing(node, publish={"condition": True})
        eventually(lambda: said()[0] == "True")
        began = time.monotonic()
        node.machine.say("fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST")
        eventually(lambda: said()[0] == "False")
        figure(f"the node's condition was False {time.monotonic() - began:.1f} s after a GPU was lost")
        assert f"GPU 3 ({'-'.join(node.machine.uuids[3].split('-')[:2])}): gpu is lost" in said()[1]
        before = said()
        agent.kill()
        agent.run()
        node.kubelet.kill()
        node.kubelet.start()
        time.sleep(3.0)
        assert said() == before
        node.machine.repair()
        eventually(lambda: said()[0] == "True")
