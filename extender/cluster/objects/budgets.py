"""PodDisruptionBudgets, in the parts that we read: whose eviction they count, and how many of those they allow now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from extender.cluster.objects.kinds import ObjectMeta

BUDGETS_PATH: Final = "/apis/policy/v1/poddisruptionbudgets"
MAX_LABELS: Final = 64
"""Of a pod that are kept; a pod may have as many as etcd takes."""
TOO_MANY_LABELS: Final = {"": "more than are kept"}
"""Stands for them. No label of Kubernetes has an empty name."""


class Requirement(msgspec.Struct, frozen=True):
    """One line of `matchExpressions`."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Whether such labels meet it; the API server stores no other operators than these."""
        match self.operator:
            case "In":
                return labels.get(self.key) in (self.values or ())
            case "NotIn":
                return labels.get(self.key) not in (self.values or ())
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Which pods are meant: all of the namespace, where it says nothing."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is meant; one that has too many of them may well be."""
        if labels.items() >= TOO_MANY_LABELS.items():
            return True
        same = (self.match_labels or {}).items() <= labels.items()
        return same and all(expression.is_met(labels) for expression in self.match_expressions or ())


class PodDisruptionBudgetSpec(msgspec.Struct, frozen=True):
    """Whom it is about; without a selector nobody."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How things are, as the disruption controller has counted."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, object] | None = None
    """Names of pods whose eviction is counted already."""


class PodDisruptionBudget(msgspec.Struct, frozen=True):
    """How many pods of a kind may be evicted at a time."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

    @property
    def allowed(self) -> int:
        """How many more evictions it bears."""
        return self.status.disruptions_allowed

    def counts(self, pod: ObjectMeta) -> bool:
        """Whether the eviction of this pod of its namespace is one that it has to bear, and has not counted yet."""
        if self.spec.selector is None or pod.name in (self.status.disrupted_pods or ()):
            return False
        return self.spec.selector.selects(pod.labels or {})


def unreadable(metadata: ObjectMeta) -> PodDisruptionBudget:
    """Return what is assumed of a budget that cannot be read: that it is about every pod, and bears nothing."""
    return PodDisruptionBudget(metadata, PodDisruptionBudgetSpec(LabelSelector()))
