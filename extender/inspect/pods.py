"""Pods by name: pages of them, and those of one name wherever they are."""

from __future__ import annotations

from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, PodInfo
from topology.annotations import keys


class PodPage(Answer):
    """Pods that ask for GPUs and have not ended; `next` is what to ask for `after` to get those that follow."""

    pods: list[PodInfo]
    next: str | None


def namespaces_with(state: ClusterState, name: str) -> tuple[str, ...]:
    """Return where there are pods with GPUs that are called so: for somebody who forgot to say which namespace."""
    return tuple(sorted({pod.key[0] for pod in state.pods if pod.key[1] == name}))


def what_counts(resource: str) -> tuple[str, str, str]:
    """Return what a pod has to ask for to be a pod with GPUs: whole ones, slices, or shares."""
    return resource, f"{keys.MIG_PREFIX}…", keys.SHARE_RESOURCE
