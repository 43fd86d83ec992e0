"""Settings of the moves."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from extender.cluster.objects.movable_pods import MovablePods
from extender.kit.settings import Duration, Names, Seconds, Section

MOST_PER_HOUR: Final = 1000
"""Moves that one annotation can record."""


class MovableSettings(Section):
    """Pods that may move without the annotation. All lists that are not empty have to name the pod."""

    namespaces: Names = ()
    """Namespaces of the pods, or patterns with `*` and `?`."""
    priority_classes: Names = ()
    """PriorityClasses of the pods."""
    owner_kinds: Names = ()
    """Kinds of their controllers. Naming a kind also says that it replaces one pod and leaves its others alone."""

    @property
    def pods(self) -> MovablePods:
        """As the core reads it."""
        return MovablePods(self.namespaces, self.priority_classes, self.owner_kinds)


class MovesSettings(Section):
    """Pods that are evicted to make room for a pod of the queue."""

    enabled: bool = False
    """Whether this extender moves pods. Needs the queue. Rights: create `pods/eviction`, get Jobs, watch PodDisruptionBudgets."""
    movable: MovableSettings = MovableSettings()
    after: Seconds = 60.0
    """Time that a pod waits without room before others move for it."""
    patience: Duration = Field(default=600.0, ge=1)
    """Time until a plan is given up; its GPUs are reserved no longer. Pods whose grace period is more than half of it stay."""
    between_moves: Seconds = 3600.0
    """Time between two moves of one owner, and the least age of a pod that moves."""
    per_hour: int = Field(default=60, ge=1, le=MOST_PER_HOUR)
    """Pods that move in an hour, at most."""
    namespace_per_hour: int = Field(default=10, ge=1, le=MOST_PER_HOUR)
    """Pods of one namespace that move in an hour, and pods that move in an hour for those of one namespace, at most."""
    at_once: int = Field(default=4, ge=1, le=64)
    """Plans that are carried out at one time, at most; half of them, and at least one, for pods of one namespace."""
    usual_wait: Duration = 600.0
    """Expected wait of a pod without room before any pod has ended. Later it follows from how many pods end; an hour at most."""
