"""What of the cluster is watched, and which cache hears of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.config import Watch
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Reflector, Timing

BUDGETS_PATH = "/apis/policy/v1/poddisruptionbudgets"
_MAX_BACKOFF_SECONDS = 300.0
"""Of the watch that may be denied for good: it is no reason to complain every few seconds."""


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches of one extender."""

    nodes: Reflector[Node]
    pods: Reflector[Pod]
    budgets: Reflector[PodDisruptionBudget]
    """Beside kube-scheduler its account may read them; elsewhere that is a right of its own, and we go on without."""

    @property
    def needed(self) -> tuple[Reflector[Node], Reflector[Pod]]:
        """Those without which nothing is decided."""
        return self.nodes, self.pods


def watches(
    config: Watch,
    api: KubeApi,
    state: ClusterState,
    told: Callable[[str, str], None],
    random: Random | None,
) -> Watches:
    """Return the watches of `state`; `told` hears of heavy and unreadable objects, by resource and fate."""
    timing = partial(
        Timing, silence_seconds=config.silence, backoff_seconds=config.backoff, max_line_bytes=config.max_line
    )
    resource = partial(
        api.resource, page_size=config.page_size, stream_seconds=config.stream, max_page_bytes=config.max_page
    )
    usual, pods = timing(max_backoff_seconds=config.max_backoff), PodFeed(state)
    budgets = Reflector(
        "poddisruptionbudgets",
        resource(BUDGETS_PATH),
        PodDisruptionBudget,
        state.budgets,
        timing=timing(max_backoff_seconds=_MAX_BACKOFF_SECONDS),
        random=random,
    )
    state.budgets.is_denied = lambda: budgets.denied
    return Watches(
        Reflector(
            "nodes",
            resource("/api/v1/nodes"),
            Node,
            state.nodes,
            timing=usual,
            random=random,
            told=partial(told, "nodes"),
        ),
        Reflector(
            "pods",
            resource("/api/v1/pods"),
            Pod,
            pods,
            keep=pods.keep,
            timing=usual,
            random=random,
            told=partial(told, "pods"),
        ),
        budgets,
    )
