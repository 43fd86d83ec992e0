"""The cluster's PodDisruptionBudgets, where we may read them; where not, kube-scheduler's word on them has to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from extender.cluster.objects.budgets import PodDisruptionBudget, unreadable
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.objects.versions import NOTHING_MORE, Listing


class Budgets:
    """All of them, by namespace; the newest event is taken for the newest version."""

    def __init__(self) -> None:
        self.is_denied: Callable[[], bool] = lambda: False
        """Whether we may not read them now."""
        self._are_listed = False
        self._in: dict[str, dict[str, PodDisruptionBudget]] = {}

    @property
    def known(self) -> bool:
        """Whether they have been listed, and are still told."""
        return self._are_listed and not self.is_denied()

    def replaced(self, objects: Sequence[PodDisruptionBudget], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all that exist."""
        self._in.clear()
        for budget in (*objects, *map(unreadable, listing.unread)):
            self.changed(budget)
        self._are_listed = True

    def changed(self, item: PodDisruptionBudget) -> None:
        """Take this for the newest version of a budget."""
        self._in.setdefault(item.metadata.namespace, {})[item.metadata.name] = item

    def deleted(self, item: PodDisruptionBudget) -> None:
        """Take note that a budget is gone."""
        there = self._in.get(item.metadata.namespace, {})
        there.pop(item.metadata.name, None)
        if not there:
            self._in.pop(item.metadata.namespace, None)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read; `gone`: it is the last."""
        (self.deleted if gone else self.changed)(unreadable(metadata))

    def of(self, pod: ObjectMeta) -> list[PodDisruptionBudget]:
        """Return the budgets that have to bear the eviction of a pod; linear in those of its namespace."""
        return [budget for budget in self._in.get(pod.namespace, {}).values() if budget.counts(pod)]


@dataclass(slots=True)
class BudgetsOfPods:
    """Which budgets have to bear the eviction of a pod, each pod looked up once, for as long as one search lasts."""

    budgets: Budgets
    _of: dict[str, list[PodDisruptionBudget]] = field(default_factory=dict)

    def of(self, pod: ObjectMeta) -> list[PodDisruptionBudget]:
        """Return them; linear in those of its namespace when it is asked first."""
        if pod.uid not in self._of:
            self._of[pod.uid] = self.budgets.of(pod)
        return self._of[pod.uid]
