"""What evictions cost: the order by which choices of victims are compared.

It is kube-scheduler's own for nodes (`pickOneNodeForPreemption`), with two things more. A group that is torn apart weighs more
than the number of victims, since those who stay lose their work, too. And among equals the pods go that kube-scheduler offered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import NamedTuple, Protocol

from extender.cluster.candidates.groups import Groups
from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.gpu_pods import priority_of
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.ownership.holdings import Holding

Choice = tuple[Holding, ...]
_LOWEST = -(2**31)
"""The least priority there is."""


class Cost(NamedTuple):
    """What a choice costs; of two the one that is less in the first thing in which they differ is cheaper."""

    violations: int
    """Victims that go beyond a PodDisruptionBudget."""
    highest: int
    """The most important victim's priority."""
    torn: int
    """Groups that lose members while others of theirs run on."""
    priorities: int
    """The sum of all, each counted from the least there is: so one pod more hardly ever costs less."""
    pods: int
    """How many go."""
    others: int
    """How many of them kube-scheduler did not offer."""


class KnownBudgets(Protocol):
    """What says which budgets have to bear an eviction."""

    def of(self, pod: ObjectMeta) -> list[PodDisruptionBudget]:
        """Return the budgets of a pod."""
        ...


@dataclass(frozen=True, slots=True)
class Protection:
    """What speaks for pods beside their priority."""

    groups: Groups | None = None
    """`None`: there are none."""
    budgets: KnownBudgets | None = None
    """`None`: we may not read them."""


class Costs:
    """What it costs to evict pods of one node."""

    def __init__(
        self,
        evictable: Choice,
        offered: Collection[str],
        in_any_case: Iterable[str],
        protection: Protection,
    ) -> None:
        """Take who may go, the UIDs of those who are offered and of those who go in any case, and what speaks for pods."""
        budgets, groups = protection.budgets, protection.groups
        self.knows_budgets = budgets is not None
        self._offered = frozenset(offered)
        self._in_any_case = frozenset(in_any_case)
        self._priority = {held.pod.uid: priority_of(held.pod.pod) for held in evictable}
        counting = {held.pod.uid: budgets.of(held.pod.pod.metadata) if budgets else [] for held in evictable}
        self._allowed = {_name(budget.metadata): budget.allowed for of_pod in counting.values() for budget in of_pod}
        self._counting = {
            uid: [_name(budget.metadata) for budget in of_pod] for uid, of_pod in counting.items() if of_pod
        }
        self._crews = frozenset(crew for held in evictable if len(crew := _crew(held, groups)) > 1)

    def of(self, choice: Choice) -> Cost:
        """Return what it costs that these go."""
        return self._of([held.pod.uid for held in choice])

    def _of(self, uids: Sequence[str]) -> Cost:
        priorities = [self._priority[uid] for uid in uids]
        pods = len(priorities)
        return Cost(
            self.violations(uids) if self._counting else 0,
            max(priorities, default=_LOWEST),
            self._torn(uids) if self._crews else 0,
            sum(priorities) - pods * _LOWEST,
            pods,
            pods - len(self._offered.intersection(uids)),
        )

    def violations(self, uids: Iterable[str]) -> int:
        """Return how many of these go beyond a budget: the most important ones use it up first, as kube-scheduler counts."""
        left, beyond = dict(self._allowed), 0
        for uid in sorted(self._counting.keys() & set(uids), key=lambda uid: (-self._priority[uid], uid)):
            for name in self._counting[uid]:
                left[name] -= 1
            beyond += any(left[name] < 0 for name in self._counting[uid])
        return beyond

    def ranked(self, pool: Choice) -> Iterator[list[Choice]]:
        """Yield all choices among these, equals together, the cheapest first; two to the power of their number."""
        of = {held.pod.uid: held for held in pool}
        choices = [choice for count in range(len(pool) + 1) for choice in combinations(of, count)]
        costs = [self._of(uids) for uids in choices]
        ranked = sorted(range(len(choices)), key=costs.__getitem__)
        for _, equals in groupby(ranked, key=costs.__getitem__):
            yield [tuple(of[uid] for uid in choices[at]) for at in equals]

    def to_spare_first(self, pool: Choice) -> list[Holding]:
        """Return these in the order in which it is tried to do without their eviction."""
        uids = [held.pod.uid for held in pool]
        bearing = [name for uid in uids for name in self._counting.get(uid, ())]
        scarce = {name for name in set(bearing) if self._allowed[name] < bearing.count(name)}

        def dearness(held: Holding) -> tuple[bool, int, bool, bool, str]:
            uid = held.pod.uid
            is_scarce = not scarce.isdisjoint(self._counting.get(uid, ()))
            is_member = any(uid in crew for crew in self._crews)
            return not is_scarce, -self._priority[uid], not is_member, uid in self._offered, uid

        return sorted(pool, key=dearness)

    def _torn(self, uids: Iterable[str]) -> int:
        gone = self._in_any_case.union(uids)
        return sum(not crew.isdisjoint(gone) and not crew <= gone for crew in self._crews)


def _crew(held: Holding, groups: Groups | None) -> frozenset[str]:
    """Return the UIDs of the members of a pod's group that are at work, with its own."""
    beside = groups.beside(held.pod.uid) if groups else ()
    return frozenset((held.pod.uid, *(other.uid for other in beside if other.node and not other.ended)))


def _name(metadata: ObjectMeta) -> tuple[str, str]:
    return metadata.namespace, metadata.name
