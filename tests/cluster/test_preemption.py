"""The real kube-scheduler evicts the pods that we name, and the pod that they leave for gets the set that they made room for."""

from typing import Any

import pytest

from benchmarks.simulated.fleet import SimulatedNode, share_pod
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.objects import PODS, PRIORITIES, priority_class
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME

pytestmark = pytest.mark.usefixtures("kubelets")

NODE = SimulatedNode("pairs", "a100-pcie-8-pairs")
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def test_victims_make_room_for_a_ring(gpu_cluster: GpuCluster) -> None:
    """Eight pods hold a GPU each of four pairs; two are evicted, and those two were a pair."""
    for name, value in (("low", 10), ("high", 1000)):
        gpu_cluster.api.post(PRIORITIES, priority_class(name, value))
    gpu_cluster.join(NODE)
    names = [f"low-{number}" for number in range(8)]
    gpu_cluster.submit(*(wants(name, 1, priorityClassName="low") for name in names))
    eventually(lambda: all(map(gpu_cluster.is_running, names)))
    gpu_of = {name: gpu_cluster.placement(name).containers["main"][0] for name in names}
    gpu_cluster.submit(wants("vip", 2, "required-affinity: nvlink", priorityClassName="high"))
    assert eventually(lambda: gpu_cluster.node_of("vip"), within_seconds=60.0) == NODE.name
    left = {pod["metadata"]["name"] for pod in gpu_cluster.api.list(PODS) if "deletionTimestamp" not in pod["metadata"]}
    evicted = set(names) - left
    assert {gpu_of[name] for name in evicted} == set(gpu_cluster.placement("vip").containers["main"])


def test_pods_whose_budget_bears_no_eviction_stay(gpu_cluster: GpuCluster) -> None:
    """Of each pair but one a pod is protected; kube-scheduler counts any two others out, and the one pair goes."""
    for name, value in (("low", 10), ("high", 1000)):
        gpu_cluster.api.post(PRIORITIES, priority_class(name, value))
    gpu_cluster.join(NODE)
    names = [f"low-{number}" for number in range(8)]
    gpu_cluster.submit(*(wants(name, 1, priorityClassName="low") for name in names))
    eventually(lambda: all(map(gpu_cluster.is_running, names)))
    holder = {gpu_cluster.placement(name).containers["main"][0]: name for name in names}
    in_order = [holder[gpu.uuid] for gpu in NODE.topology.gpus]
    first, *others = zip(in_order[::2], in_order[1::2], strict=True)
    for protected, _ in others:
        gpu_cluster.api.patch(f"{PODS}/{protected}", {"metadata": {"labels": {"app": "kept"}}})
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}}
    gpu_cluster.api.post(BUDGETS, {"metadata": {"name": "kept"}, "spec": spec})
    eventually(lambda: gpu_cluster.extender.metric("budgets_known"))
    gpu_cluster.submit(wants("vip", 2, "required-affinity: nvlink", priorityClassName="high"))
    assert eventually(lambda: gpu_cluster.node_of("vip"), within_seconds=60.0) == NODE.name
    left = {pod["metadata"]["name"] for pod in gpu_cluster.api.list(PODS) if "deletionTimestamp" not in pod["metadata"]}
    assert set(names) - left == set(first)


def test_victims_make_room_for_a_share_on_one_gpu(gpu_cluster: GpuCluster) -> None:
    """Of sixteen pods with half a GPU each, two are evicted that have the same one."""
    node = SimulatedNode("shared", "a100-pcie-8-pairs", shared_gpus=8)
    for name, value in (("low", 10), ("high", 1000)):
        gpu_cluster.api.post(PRIORITIES, priority_class(name, value))
    gpu_cluster.join(node)
    names = [f"low-{number}" for number in range(16)]
    ours: dict[str, Any] = {"schedulerName": SCHEDULER_NAME}
    half_gib = node.share_gib // 2
    gpu_cluster.submit(*(share_pod(name, half_gib, priorityClassName="low", **ours) for name in names))
    eventually(lambda: all(map(gpu_cluster.is_running, names)))
    gpu_of = {name: gpu_cluster.placement(name).containers["main"][0] for name in names}
    gpu_cluster.submit(share_pod("vip", half_gib + 2, priorityClassName="high", **ours))
    assert eventually(lambda: gpu_cluster.node_of("vip"), within_seconds=60.0) == node.name
    left = {pod["metadata"]["name"] for pod in gpu_cluster.api.list(PODS) if "deletionTimestamp" not in pod["metadata"]}
    evicted = set(names) - left
    assert len(evicted) == 2
    assert {gpu_of[name] for name in evicted} == set(gpu_cluster.placement("vip").containers["main"])
