"""The state of the cluster as the configuration wants it read."""

from __future__ import annotations

from extender.cluster.objects.group_words import GroupWords
from extender.cluster.state import ClusterState
from extender.config import ExtenderConfiguration


def state_of(config: ExtenderConfiguration) -> ClusterState:
    """Return an empty one."""
    return ClusterState(
        resource=config.scheduling.resource,
        scheduler_names=config.scheduling.scheduler_names,
        tolerated_taints=config.scheduling.tolerated_taints,
        weights=config.scheduling.weights,
        agent_namespace=config.agents.namespace,
        silence_seconds=config.agents.silence,
        labels=config.scheduling.domain_labels,
        health_words=config.node_health.words,
        group_words=GroupWords(config.groups.sources),
        group_label=config.node_groups.label,
        expected=config.node_groups.topologies,
    )
