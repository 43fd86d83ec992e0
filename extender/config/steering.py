"""Nominations for the pods of a long queue."""

from __future__ import annotations

from pydantic import Field

from extender.kit.settings import Duration, Section


class SteeringSettings(Section):
    """Nominations: kube-scheduler is told where the pods of a queue go before it looks, and then tries that node first."""

    enabled: bool = False
    """Needs Kubernetes 1.35."""
    queue: int = Field(default=20, ge=1)
    """Pods that have to wait before any is nominated."""
    nodes: int = Field(default=500, ge=1)
    """Nobody is nominated where kube-scheduler looks at fewer nodes for a pod: there a nomination costs what it saves."""
    ahead: int = Field(default=128, ge=32)
    """About so many nominations may stand that kube-scheduler has not asked about yet: the queue's next pods."""
    life: Duration = Field(default=10.0, ge=1)
    """How long GPUs are held for a nominated pod; a nomination that has not come true a second later is taken back."""
