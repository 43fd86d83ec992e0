"""PodGroups of Kubernetes itself: the flags that turn them on, and the objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.processes.client import Json

API: Final = "scheduling.k8s.io/v1beta1"
OLDEST: Final = (1, 37)
"""The first Kubernetes that serves it."""
POD_GROUPS: Final = f"/apis/{API}/namespaces/default/podgroups"
SCHEDULER_FLAGS: Final[Mapping[str, object]] = {
    "feature-gates": "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
}
APISERVER_FLAGS: Final[Mapping[str, object]] = {**SCHEDULER_FLAGS, "runtime-config": f"{API}=true"}


def pod_group(name: str, size: int, **spec: object) -> Json:
    """Return a PodGroup whose pods start together or not at all."""
    policy = {"gang": {"minCount": size}}
    return {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def member(pod: Json, group: str) -> Json:
    """Return a pod as one of a PodGroup."""
    return {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": group}}}


def was_tried(group: Json) -> bool:
    """Whether kube-scheduler has said of a PodGroup that it was scheduled, or could not be."""
    return bool(group.get("status", {}).get("conditions"))
