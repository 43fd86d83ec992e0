"""Placeholders, which ask an autoscaler for nodes."""

from __future__ import annotations

from pydantic import Field

from extender.kit.settings import Duration, Section


class AutoscalingSettings(Section):
    """Placeholder pods, which request a node when enough GPUs are free but not connected as requested."""

    enabled: bool = False
    """Needs the right to create and delete Jobs in `namespace`."""
    namespace: str = "gputopo-placeholders"
    """Namespace of the placeholders only."""
    priority_class: str = "gputopo-placeholder"
    """Must not preempt, and must not be below -10 for cluster-autoscaler."""
    image: str = "registry.k8s.io/pause:3.10"
    """Image of the placeholder. It starts only if kube-scheduler binds it without the extender."""
    device_class: str = "gpu.nvidia.com"
    """DeviceClass that placeholders of pods with ResourceClaims request; autoscalers know its devices."""
    limit: int = Field(default=10, ge=1)
    """Maximum number of placeholders."""
    after: Duration = 30.0
    """Time for which a pod is refused before it gets a placeholder."""
    life: Duration = Field(default=600.0, ge=1)
    """Time after which Kubernetes ends a placeholder."""
    pause: Duration = 300.0
    """Pause after a placeholder without effect, doubled each time."""
    longest_pause: Duration = 3600.0
    """Longest pause."""
