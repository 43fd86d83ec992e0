"""Waiting pods that name a scheduler which does not ask us: nothing here will ever place them."""

from __future__ import annotations

from typing import Final

from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState

_MAX_CHARACTERS: Final = 253
"""Of a name that is shown; no scheduler has a longer one."""


def scheduler_problem(state: ClusterState, pod: Pod) -> str | None:
    """Say that a pod without a node waits for another scheduler.

    Return `None` where it names one of ours, or none at all, and where a feature allocates its claims.
    """
    another = state.indexes.schedulers.another(pod)
    if another is None or pod.spec.node_name:
        return None
    cached = state.pods.get(pod.metadata.uid)
    if cached and cached.claimed:
        return None
    ours = " or ".join(state.indexes.schedulers.ours)
    return (
        f"spec.schedulerName is {another[:_MAX_CHARACTERS]}, a scheduler that does not ask gputopo; "
        f"create the pod with spec.schedulerName: {ours}"
    )
