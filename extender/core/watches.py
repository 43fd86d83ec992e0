"""What of the cluster is watched, and which cache hears of it."""

from __future__ import annotations

from dataclasses import dataclass

from extender.cluster.objects.budgets import BUDGETS_PATH, PodDisruptionBudget
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.kubernetes.reflector import Reflector
from extender.kubernetes.watching import Watching

_MAX_BACKOFF_SECONDS = 300.0
"""Of the watch that may be denied for good: it is no reason to complain every few seconds."""


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches of one extender, but for those of DRA (`extender.core.device_watch`)."""

    nodes: Reflector[Node]
    pods: Reflector[Pod]
    budgets: Reflector[PodDisruptionBudget]
    """Beside kube-scheduler its account may read them; elsewhere that is a right of its own, and we go on without."""

    @property
    def needed(self) -> tuple[Reflector[Node], Reflector[Pod]]:
        """Those without which nothing is decided."""
        return self.nodes, self.pods


def watches(watching: Watching, state: ClusterState) -> Watches:
    """Return the watches of `state`."""
    pods = PodFeed(state)
    budgets = watching.reflector(
        BUDGETS_PATH, PodDisruptionBudget, state.budgets, max_backoff_seconds=_MAX_BACKOFF_SECONDS
    )
    state.budgets.is_denied = lambda: budgets.denied
    return Watches(
        watching.reflector("/api/v1/nodes", Node, state.nodes, knows=state.nodes.knows),
        watching.reflector("/api/v1/pods", Pod, pods, keep=pods.keep, knows=pods.knows),
        budgets,
    )
