"""Pods for real nodes, and what became of them."""

from collections.abc import Mapping
from typing import Any

from tests.cluster.api import Json
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.images import IMAGE
from tests.cluster.nodes.node import GpuNode
from tests.cluster.objects import GPU, PODS
from tests.cluster.polling import TimedOut, eventually
from topology.annotations.keys import SHARE_RESOURCE


def container(name: str, gpus: int, **fields: Any) -> Json:
    """Return a container that asks for GPUs and for nothing that a small machine has little of."""
    limits = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "resources": limits, **fields}


def pod(name: str, *gpus: int, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """Return a pod with a container for each number of GPUs; they are called `main`, `c1`, `c2` and so on.

    It is deleted when its kubelet says that it has ended, and not, as one that takes no time to end, at once.
    """
    containers = [container(f"c{position}" if position else "main", each) for position, each in enumerate(gpus)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1, **spec},
    }


def share_pod(name: str, *gib: int, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """Return a pod with a container for each share of a GPU, called as those of `pod`."""
    made = pod(name, *(0 for _ in gib), annotations=annotations, **spec)
    for each, share in zip(made["spec"]["containers"], gib, strict=True):
        each["resources"] = {"limits": {SHARE_RESOURCE: str(share)}}
    return made


def bound_pod(node: GpuNode, name: str, *gpus: int, **spec: Any) -> Json:
    """Return a pod that no scheduler ever sees."""
    return pod(name, *gpus, nodeName=node.name, **spec)


def submit(node: GpuNode, wanted: Json) -> Json:
    """Create a pod in the node's cluster."""
    return node.plane.admin.post(PODS, wanted)


def status(node: GpuNode, name: str) -> Json:
    """Return a pod's status."""
    found: Json = node.plane.admin.get(f"{PODS}/{name}")["status"]
    return found


def is_running(node: GpuNode, name: str) -> bool:
    """Whether the pod's containers run."""
    return bool(status(node, name)["phase"] == "Running")


def refusal(node: GpuNode, name: str) -> str:
    """Return the reason and message of a pod that the kubelet has refused; empty while it has not."""
    found = status(node, name)
    return f"{found.get('reason')}: {found.get('message')}" if found["phase"] == "Failed" else ""


def on_hold(node: GpuNode, name: str) -> str:
    """Return what the pod's status and its events say alike of a container that may not start yet; empty while they do not."""
    waiting = [each["state"].get("waiting", {}) for each in status(node, name).get("containerStatuses", ())]
    said = next((each.get("message", "") for each in waiting if "on hold" in each.get("message", "")), "")
    events = node.plane.admin.list("/api/v1/namespaces/default/events")
    told = [each["message"] for each in events if each["involvedObject"].get("name") == name]
    return said if any(said in message for message in told) else ""


def wait_running(cluster: GpuCluster, *names: str, within_seconds: float = 60.0) -> None:
    """Return when all these pods run; else fail with what the scheduler says of the first that does not."""
    waiting = [*names]

    def all_run() -> bool:
        waiting[:] = [name for name in waiting if not cluster.is_running(name)]
        return not waiting

    try:
        eventually(all_run, within_seconds)
    except TimedOut:
        first = cluster.pod(waiting[0])
        raise AssertionError(f"{waiting} do not run: {cluster.why_pending(waiting[0])} {first['status']}") from None
