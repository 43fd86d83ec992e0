"""Placeholders, which ask an autoscaler for nodes."""

from __future__ import annotations

from pydantic import Field

from extender.kit.settings import Duration, Section


class AutoscalingSettings(Section):
    """Placeholders: they ask autoscalers for a node where a pod is refused for links although enough GPUs are free."""

    enabled: bool = False
    """Takes the right to create and delete Jobs in `namespace`."""
    namespace: str = "gputopo-placeholders"
    """The namespace that placeholders are made in; nothing else belongs there."""
    priority_class: str = "gputopo-placeholder"
    """Never preempts, and is not below what cluster-autoscaler takes seriously, -10."""
    image: str = "registry.k8s.io/pause:3.10"
    """Image of the placeholder's container, which never starts."""
    limit: int = Field(default=10, ge=1)
    """How many placeholders there are at once."""
    after: Duration = 30.0
    """A pod has to be refused for so long before it gets one."""
    life: Duration = Field(default=600.0, ge=1)
    """Time after which Kubernetes ends a placeholder, whoever is alive."""
    pause: Duration = 300.0
    """After a placeholder that brought nothing, before its pod gets another one; doubled each time, up to `longestPause`."""
    longest_pause: Duration = 3600.0
    """The longest pause; see `pause`."""
