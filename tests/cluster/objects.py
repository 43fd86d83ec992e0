"""Builders of the Kubernetes objects that cluster tests create."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
ALL_PODS = "/api/v1/pods"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def node(
    name: str,
    gpus: int = 0,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Json:
    """Return a Ready Node with its status, so that one POST makes it schedulable."""
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    if not gpus:
        del resources[GPU]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "no kubelet"}],
        },
    }


def container(name: str = "main", gpus: int = 0) -> Json:
    """Return a container that asks for whole GPUs; nothing ever runs its image."""
    limits = {GPU: str(gpus)} if gpus else {}
    requests = {"cpu": "1", "memory": "1Gi"}
    return {"name": name, "image": "example.test/none", "resources": {"requests": requests, "limits": limits}}


def pod(
    name: str,
    gpus: int = 0,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: object,
) -> Json:
    """Return a pod with one container of `gpus` GPUs; `spec` adds to its spec or replaces parts of it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})},
        "spec": {"containers": [container(gpus=gpus)], "terminationGracePeriodSeconds": 0, **spec},
    }


def priority_class(name: str, value: int) -> Json:
    """Return a PriorityClass; a higher value may pre-empt a lower one."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
