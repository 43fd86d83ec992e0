"""Nominations for the pods of a long queue."""

from __future__ import annotations

from pydantic import Field

from extender.kit.settings import Duration, Section


class SteeringSettings(Section):
    """Nominations of nodes for queued pods, which kube-scheduler tries first."""

    enabled: bool = False
    """Needs Kubernetes 1.35."""
    queue: int = Field(default=20, ge=1)
    """Number of waiting pods from which nominations begin."""
    nodes: int = Field(default=500, ge=1)
    """Nodes that kube-scheduler considers for a pod. With fewer, nominations cost what they save, and none are made."""
    ahead: int = Field(default=128, ge=32)
    """Approximate maximum of unused nominations."""
    life: Duration = Field(default=10.0, ge=1)
    """Time for which GPUs are held for a nominated pod. An unused nomination is withdrawn a second later."""
