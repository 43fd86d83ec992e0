"""Whom to evict from one node: of the pods that may go, the cheapest ones whose GPUs form the set that is asked for.

Nobody goes who could stay, and of all such choices the cheapest is taken (`cost.Cost`), then the one that gains most bandwidth.
Without the right to read PodDisruptionBudgets, pods that kube-scheduler did not offer are named only where the offered
ones are not enough. It may have spared them for a budget.

What kube-scheduler has reasons for that we cannot see stays as it was. Victims without GPUs go in any case. What is freed
of every resource is at least what was offered, or what the pod requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from math import lcm

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import has_ended, priority_of
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.quantities import requests
from extender.cluster.ownership.conflicts import hidden_gib, hidden_gpus, hidden_slices
from extender.cluster.ownership.holdings import Holding
from extender.cluster.shares import shares_of
from extender.verbs.cost import Choice, Cost, Costs, Protection
from topology.placement.decide import Decision
from topology.placement.shares import Shares
from topology.placement.verdict import UNDECIDED, Placement
from topology.request.gpu_request import GpuRequest

EXACT_PODS = 8
"""Up to so many pods that may be evicted from a node every choice is looked at; of more, one after the other is spared."""

Steps = Generator[None, None, Choice | None]
"""Comes to a choice; `None`: none helps."""


class Candidate:
    """One node that is offered, in one view of it."""

    def __init__(
        self,
        view: NodeView,
        pod: Pod,
        request: GpuRequest,
        need: Counter[str],
        offered: Sequence[str],
        protection: Protection = Protection(),  # noqa: B008
        spared: Collection[str] = (),
    ) -> None:
        """Take what `pod` wants of GPUs, what it needs of every resource, the UIDs of those offered, and what protects pods.

        Pods that are `spared` are not chosen, by UID; those of them that are offered go in any case.
        """
        self.view = view
        self._request = request
        self._need = need
        self._offered = dict.fromkeys(offered)
        self._evictable = tuple(held for held in view.holdings if _may_go(held, pod) and held.pod.uid not in spared)
        evictable = {held.pod.uid for held in self._evictable}
        self._in_any_case = frozenset(uid for uid in self._offered if uid not in evictable)
        self._offered_ones = tuple(held for held in self._evictable if held.pod.uid in self._offered)
        self._taken, self._taken_across = view.taken(), view.taken_across() if request.is_share else {}
        staying = [held for held in view.holdings if held.pod.uid not in evictable | self._in_any_case]
        self._hidden, self._hidden_slices = hidden_gpus(staying), hidden_slices(staying)
        self._hidden_gib = hidden_gib(staying)
        self._wanted = view.shape.devices_for(request)
        self._protection = protection
        self._costs: Costs | None = None
        """Known once a search has begun."""
        self.cost: Cost | None = None
        """Of what the search has come to; `None`: of nothing."""
        self._freed: _Freed | None = None
        self._is_undecided = False
        """A search goes on; without its answer the wrong pods might have to go."""

    @property
    def bound(self) -> tuple[int, int]:
        """The highest priority among the victims, and their number, that it takes to free enough GPUs, formed well or not.

        Cheap, and seldom more than what it comes to; a node without enough GPUs comes last. A share takes one victim.
        """
        lacking = 1 if self._request.is_share else self._request.gpus - self._free_without(()).bit_count()
        by_priority = sorted(
            (priority_of(held.pod.pod), -(self._taken.get(held.pod.uid, 0) & self._wanted).bit_count())
            for held in self._evictable
        )
        for count, (priority, gpus) in enumerate(by_priority, start=1):
            lacking += gpus
            if lacking <= 0:
                return priority, count
        return 2**31, len(by_priority)

    def search(self) -> Generator[None, None, list[str]]:
        """Return the UIDs of those who have to go, by falling priority; none if that does not help, or is not known yet.

        A step is at most one decision. There are at most two to a power of `EXACT_PODS`, or as many as there are pods.
        """
        if self.view.shape.closed:
            return []
        self._freed = _Freed(self._evictable, self._offered_ones, self._need)
        costs = self._costs = Costs(self._evictable, self._offered, self._in_any_case, self._protection)
        pools = (self._evictable,) if costs.knows_budgets else (self._offered_ones, self._evictable)
        for pool in pools:
            yield
            is_exact = len(pool) <= EXACT_PODS
            if self._gain(pool) is not None or (is_exact and self._shares_too_many):
                chosen = yield from (self._best if is_exact else self._spared)(pool, costs)
                if self._is_undecided:
                    return []
                if chosen is None:
                    continue
                self.cost = costs.of(chosen)
                return self._in_order(chosen)
        return []

    def violations(self, victims: Collection[str], offered: int) -> int:
        """Return how many of those who have to go are beyond a budget, of whom kube-scheduler said so of `offered`.

        Of those who go in any case it is believed; where we may not read budgets, of all.
        """
        if self._costs is None or not self._costs.knows_budgets:
            return offered
        elsewhere = max(0, offered - self._costs.violations(self._offered))
        return elsewhere + self._costs.violations(victims)

    def still_helps(self, victims: Collection[str], then: Candidate) -> bool:
        """Whether victims that were found in an earlier view may be evicted as they might then, and the pod has its GPUs."""
        may_go, might_go = ({held.pod.uid for held in candidate._evictable} for candidate in (self, then))
        still_may = may_go.issuperset(might_go.intersection(victims))
        return still_may and not self.view.shape.closed and self._bandwidth(victims) is not None

    def _best(self, pool: Choice, costs: Costs) -> Steps:
        """Look at all choices, from the cheapest to the dearest."""
        for equals in costs.ranked(pool):
            best, most = None, -1.0
            for choice in equals:
                yield
                gain = self._gain(choice)
                if gain is not None and gain > most and not (yield from self._has_to_spare(choice)):
                    best, most = choice, gain
            if best is not None:
                return best
        return None

    def _has_to_spare(self, choice: Choice) -> Generator[None, None, bool]:
        """Whether one of them could stay: a whole group may cost less than a part of it, and yet nobody goes for nothing."""
        for held in choice:
            yield
            if self._gain(_without(choice, held)) is not None:
                return True
        return False

    def _spared(self, pool: Choice, costs: Costs) -> Steps:
        """Begin with everybody, and spare one after the other, the dearest first."""
        kept = tuple(pool)
        for held in costs.to_spare_first(pool):
            yield
            fewer = _without(kept, held)
            if self._gain(fewer) is not None:
                kept = fewer
        return kept

    def _gain(self, choice: Choice) -> float | None:
        """Return the bandwidth of the set that the evictions make room for, GB/s; `None` when they do not help."""
        victims = {held.pod.uid for held in choice}
        if self._free_without(victims).bit_count() < self._request.gpus or not (victims or self._in_any_case):
            return None
        return self._bandwidth(victims) if self._freed is None or self._freed.is_enough(victims) else None

    @property
    def _shares_too_many(self) -> bool:
        """Whether more GPUs are shared than may be: then one that all sharers leave takes none any more, and fewer help more."""
        most = self.view.payloads.sharing.max_gpus if self.view.payloads.sharing else 0
        return self._request.is_share and len(self.view.shape.shares.shared) > most > 0

    def _free_without(self, victims: Collection[str]) -> int:
        """Return the mask of the GPUs that are free when these are gone, and those who go in any case."""
        free = self.view.fit & self._wanted
        for who, gpus in self._taken.items():
            if who not in victims and who not in self._in_any_case:
                free &= ~gpus
        return free

    def _shares_without(self, victims: Collection[str], free: int) -> Shares:
        """Return what may be shared when these are gone, and those who go in any case."""
        view, gone = self.view, {*victims, *self._in_any_case}
        uses = {gpu: left for gpu, use in view.uses.items() if (left := use.without(gone))}
        fit = view.fit
        for owner, across in self._taken_across.items():
            fit &= -1 if owner in gone else ~across
        return shares_of(view.payloads, uses, free, fit, self._hidden_gib, as_told=False)

    def _bandwidth(self, victims: Collection[str]) -> float | None:
        verdict = self.decide_without(victims)
        self._is_undecided |= verdict is UNDECIDED
        if not isinstance(verdict, Placement):
            return None
        return verdict.bandwidth.point if verdict.bandwidth else 0.0

    def decide_without(self, victims: Collection[str], beside: Held = NOTHING) -> Decision:
        """Return the placement when these are gone, and those who go in any case, beside the GPUs that are held for others."""
        shape, free = self.view.shape, self._free_without(victims) & ~self.view.shape.excluding(beside.touched)
        idle = shape.topology_manager and shape.topology_manager.idle  # whose CPUs go with the victims is not counted
        gone = {*victims, *self._in_any_case}
        shape = replace(
            shape,
            free=free,
            hidden=self._hidden,
            hidden_slices=self._hidden_slices,
            topology_manager=idle,
            claims_left=shape.claims_left.plus(sum(claim.uid in gone for claim, _ in self.view.claims)),
        )
        if self._request.is_share:
            shape = replace(shape, shares=self._shares_without(victims, free))
        return shape.decide(self._request)

    def _in_order(self, choice: Choice) -> list[str]:
        """Keep the order in which victims were offered, and put the others in by priority: the first counts as the highest."""
        priorities: Mapping[str, int] = {held.pod.uid: priority_of(held.pod.pod) for held in self._evictable}
        chosen = {held.pod.uid for held in choice}
        order = [uid for uid in self._offered if uid in chosen or uid in self._in_any_case]
        for uid in sorted(chosen.difference(order), key=lambda uid: (-priorities[uid], uid)):
            lower = (
                at for at, earlier in enumerate(order) if priorities.get(earlier, priorities[uid]) < priorities[uid]
            )
            order.insert(next(lower, len(order)), uid)
        return order


class _Freed:
    """What evictions free of every resource: as much as the offered ones do, or as the pod needs, is enough.

    Where nobody can tell what a pod takes, only the offered ones and more will do.
    """

    def __init__(self, evictable: Choice, offered: Choice, need: Counter[str]) -> None:
        self._offered = {held.pod.uid for held in offered}
        takes = {held.pod.uid: _takes(held.pod.pod) for held in evictable}
        offers = [takes[uid] for uid in self._offered]
        least = sum((amount for amount in offers if amount is not None), Counter[str]()) & need
        amounts = [amount for amount in (need, *takes.values()) if amount is not None]
        unit = lcm(*(amount[resource].denominator for amount in amounts for resource in least))
        self._least = None if None in offers else [int(unit * least[resource]) for resource in least]
        """In units of which everything is a whole number: adding up is most of the work."""
        self._takes = {
            uid: None if amount is None else [int(unit * amount[resource]) for resource in least]
            for uid, amount in takes.items()
        }

    def is_enough(self, victims: Collection[str]) -> bool:
        """Whether it is enough that these go."""
        taken = [takes for uid in victims if (takes := self._takes[uid]) is not None]
        if self._least is None or len(taken) < len(victims):
            return self._offered.issubset(victims)
        return all(sum(amounts[at] for amounts in taken) >= least for at, least in enumerate(self._least))


def _without(choice: Choice, held: Holding) -> Choice:
    return tuple(holding for holding in choice if holding is not held)


def _may_go(held: Holding, pod: Pod) -> bool:
    """Whether evicting one helps the other; kube-scheduler takes none that has ended for a victim, and fails the call."""
    return held.hidden == 0 and priority_of(held.pod.pod) < priority_of(pod) and not has_ended(held.pod.pod)


def _takes(pod: Pod) -> Counter[str] | None:
    """Return what the pod takes of every resource, `None` where nobody can tell."""
    try:
        return requests(pod)
    except ValueError:
        return None
