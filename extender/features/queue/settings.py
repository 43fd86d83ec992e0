"""The queue in front of kube-scheduler."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extender.kit.settings import Duration, Section, Table


class QueueSettings(Section):
    """Pods with the scheduling gate `gputopo.dev/plan`, which is removed once they have a place."""

    enabled: bool = False
    """Whether this extender plans the queue. Needs the rights to patch pods and to hold a Lease."""
    weights: Table[str, Annotated[float, Field(gt=0, le=1000)]] = Field(default_factory=dict, max_length=1000)
    """Share of a namespace compared with others, by its name. Namespaces that are not named have 1."""
    nominate: bool = True
    """Whether pods that are not pinned are nominated: kube-scheduler tries the planned node first. Needs Kubernetes 1.35."""
    ahead: int = Field(default=256, ge=1)
    """Approximate maximum of pods that are planned and not bound yet. One gang may exceed it."""
    reservation: Duration = Field(default=3600.0, ge=0)
    """Time for which GPUs may be kept for a gang; then another one has its turn. With 0 none are kept."""
    evict: bool = True
    """Whether to evict half gangs, and pods whose planned node is gone. Needs the right to create `pods/eviction`."""
    condition: bool = True
    """Whether waiting pods have a condition `gputopo.dev/Planned` with the reason."""
