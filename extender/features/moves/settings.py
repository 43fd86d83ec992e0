"""Settings of the moves."""

from __future__ import annotations

from pydantic import Field

from extender.kit.settings import Duration, Seconds, Section


class MovesSettings(Section):
    """Pods with `gputopo.dev/movable` that are evicted to make room for a pod of the queue."""

    enabled: bool = False
    """Whether this extender moves pods. Needs the queue. Rights: create `pods/eviction`, get Jobs, watch PodDisruptionBudgets."""
    after: Seconds = 60.0
    """Time that a pod waits without room before others move for it."""
    patience: Duration = Field(default=600.0, ge=1)
    """Time until a plan is given up; its GPUs are reserved no longer. Pods whose grace period is more than half of it stay."""
    between_moves: Seconds = 3600.0
    """Time between two moves of one owner, and the least age of a pod that moves."""
    per_hour: int = Field(default=60, ge=1, le=10_000)
    """Pods that move in an hour, at most."""
    namespace_per_hour: int = Field(default=10, ge=1, le=10_000)
    """Pods of one namespace that move in an hour, and pods that move in an hour for those of one namespace, at most."""
    at_once: int = Field(default=4, ge=1, le=64)
    """Plans that are carried out at one time, at most; half of them, and at least one, for pods of one namespace."""
    usual_wait: Duration = 600.0
    """Expected wait of a pod without room before any pod has ended. Later it follows from how many pods end; an hour at most."""
