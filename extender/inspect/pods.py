"""Pods by name: pages of them, and those of one name wherever they are."""

from __future__ import annotations

from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, PodInfo, pod_infos
from topology.annotations import keys


class PodPage(Answer):
    """Pods that ask for GPUs and have not ended; `next` is what to ask for `after` to get those that follow."""

    pods: list[PodInfo]
    next: str | None


class PodList(Answer):
    """All pods that request GPUs and have not ended."""

    pods: tuple[PodInfo, ...]


def pod_list(state: ClusterState, namespace: str | None) -> PodList:
    """Return the pods of a namespace, `None` for all, in the order of their names."""
    pods = sorted(
        (pod for pod in state.pods if not pod.stopped and namespace in (None, pod.key[0])), key=lambda pod: pod.key
    )
    return PodList(pods=tuple(pod_infos(state, pods)))


def namespaces_with(state: ClusterState, name: str) -> tuple[str, ...]:
    """Return where there are pods with GPUs that are called so: for somebody who forgot to say which namespace."""
    return tuple(sorted({pod.key[0] for pod in state.pods if pod.key[1] == name}))


def what_counts(resource: str) -> tuple[str, str, str]:
    """Return what a pod has to ask for to be a pod with GPUs: whole ones, slices, or shares."""
    return resource, f"{keys.MIG_PREFIX}…", keys.SHARE_RESOURCE
