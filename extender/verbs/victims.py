"""Whom to evict from one node: of the pods that may go, the least important ones whose GPUs form the set that is asked for.

That is: the highest priority among them as low as can be, then as few as can be, then offered ones rather than others, then the
bandwidth that is gained. Others are named only where the offered ones are not enough.

What kube-scheduler has reasons for that we cannot see stays as it was: victims without GPUs go in any case, and what is freed of
every resource is at least what was offered, or what the pod asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from math import lcm

from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import has_ended
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.quantities import requests
from extender.cluster.ownership.holdings import Holding
from topology.placement.verdict import UNDECIDED, Placement
from topology.request.gpu_request import GpuRequest

EXACT_PODS = 8
"""Up to so many pods that may be evicted from a node every choice is looked at; of more, one after the other is spared."""

Choice = tuple[Holding, ...]
Steps = Generator[None, None, Choice | None]
"""Comes to a choice; `None`: none helps."""


class Candidate:
    """One node that is offered, in one view of it."""

    def __init__(
        self, view: NodeView, pod: Pod, request: GpuRequest, need: Counter[str], offered: Sequence[str]
    ) -> None:
        """Take what `pod` wants of GPUs, what it needs of every resource, and the UIDs of the victims that are offered."""
        self.view = view
        self._request = request
        self._need = need
        self._offered = dict.fromkeys(offered)
        self._evictable = tuple(held for held in view.holdings if _may_go(held, pod))
        known = {held.pod.uid for held in self._evictable}
        self._in_any_case = frozenset(uid for uid in self._offered if uid not in known)
        self._offered_ones = tuple(held for held in self._evictable if held.pod.uid in self._offered)
        self._taken = view.taken()
        staying = (held for held in view.holdings if held.pod.uid not in known | self._in_any_case)
        self._hidden = sum(held.hidden or 0 for held in staying)
        self._freed: _Freed | None = None
        self._is_undecided = False
        """A search goes on; without its answer the wrong pods might have to go."""

    @property
    def bound(self) -> tuple[int, int]:
        """The highest priority among the victims, and their number, that it takes to free enough GPUs, formed well or not.

        Cheap, and seldom more than what it comes to; a node without enough GPUs comes last.
        """
        lacking = self._request.gpus - self._free_without(()).bit_count()
        by_priority = sorted((_priority(held.pod.pod), -len(held.gpus)) for held in self._evictable)
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
        for pool in (self._offered_ones, self._evictable):
            yield
            if self._gain(pool) is not None:
                chosen = yield from (self._best if len(pool) <= EXACT_PODS else self._spared)(pool)
                return self._in_order(chosen) if chosen is not None and not self._is_undecided else []
        return []

    def still_helps(self, victims: Collection[str], then: Candidate) -> bool:
        """Whether victims that were found in an earlier view may be evicted as they might then, and the pod has its GPUs."""
        may_go, might_go = ({held.pod.uid for held in each._evictable} for each in (self, then))
        still_may = may_go.issuperset(might_go.intersection(victims))
        return still_may and not self.view.shape.closed and self._bandwidth(self._free_without(victims)) is not None

    def _best(self, pool: Choice) -> Steps:
        """Look at all choices, from the least important to the most."""
        for equals in _ranked(pool, self._offered):
            best, most = None, -1.0
            for choice in equals:
                yield
                gain = self._gain(choice)
                if gain is not None and gain > most:
                    best, most = choice, gain
            if best is not None:
                return best
        return None

    def _spared(self, pool: Choice) -> Steps:
        """Begin with everybody, and spare one after the other, the most important first."""
        kept = sorted(pool, key=lambda held: (-_priority(held.pod.pod), held.pod.uid))
        for held in tuple(kept):
            yield
            fewer = tuple(other for other in kept if other is not held)
            if self._gain(fewer) is not None:
                kept = list(fewer)
        return tuple(kept)

    def _gain(self, choice: Choice) -> float | None:
        """Return the bandwidth of the set that the evictions make room for, GB/s; `None` when they do not help."""
        victims = {held.pod.uid for held in choice}
        free = self._free_without(victims)
        if free.bit_count() < self._request.gpus or not (victims or self._in_any_case):
            return None
        return self._bandwidth(free) if self._freed is None or self._freed.is_enough(victims) else None

    def _free_without(self, victims: Collection[str]) -> int:
        """Return the mask of the GPUs that are free when these are gone, and those who go in any case."""
        free = self.view.fit
        for who, gpus in self._taken.items():
            if who not in victims and who not in self._in_any_case:
                free &= ~gpus
        return free

    def _bandwidth(self, free: int) -> float | None:
        shape = self.view.shape
        idle = shape.topology_manager and shape.topology_manager.idle  # whose CPUs go with the victims is not counted
        verdict = replace(shape, free=free, hidden=self._hidden, topology_manager=idle).decide(self._request)
        self._is_undecided |= verdict is UNDECIDED
        if not isinstance(verdict, Placement):
            return None
        return verdict.bandwidth.point if verdict.bandwidth else 0.0

    def _in_order(self, choice: Choice) -> list[str]:
        """Keep the order in which victims were offered, and put the others in by priority: the first counts as the highest."""
        priorities: Mapping[str, int] = {held.pod.uid: _priority(held.pod.pod) for held in self._evictable}
        chosen = {held.pod.uid for held in choice}
        order = [uid for uid in self._offered if uid in chosen or uid in self._in_any_case]
        for uid in sorted(chosen.difference(order), key=lambda uid: (-priorities[uid], uid)):
            lower = (at for at, other in enumerate(order) if priorities.get(other, priorities[uid]) < priorities[uid])
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
        least = sum((each for each in offers if each is not None), Counter[str]()) & need
        amounts = [each for each in (need, *takes.values()) if each is not None]
        unit = lcm(*(each[resource].denominator for each in amounts for resource in least))
        self._least = None if None in offers else [int(unit * least[resource]) for resource in least]
        """In units of which everything is a whole number: adding up is most of the work."""
        self._takes = {
            uid: None if each is None else [int(unit * each[resource]) for resource in least]
            for uid, each in takes.items()
        }

    def is_enough(self, victims: Collection[str]) -> bool:
        """Whether it is enough that these go."""
        taken = [takes for uid in victims if (takes := self._takes[uid]) is not None]
        if self._least is None or len(taken) < len(victims):
            return self._offered.issubset(victims)
        return all(sum(each[at] for each in taken) >= least for at, least in enumerate(self._least))


def _ranked(pool: Choice, offered: Collection[str]) -> Iterator[list[Choice]]:
    """Yield all choices, equals together, the least important first; no more are worked out than are asked for."""

    def rank(choice: Choice) -> tuple[int, int, tuple[str, ...]]:
        uids = tuple(held.pod.uid for held in choice)
        return sum(uid not in offered for uid in uids), sum(_priority(held.pod.pod) for held in choice), uids

    yield [()]
    for highest in sorted({_priority(held.pod.pod) for held in pool}):
        top = {held.pod.uid for held in pool if _priority(held.pod.pod) == highest}
        within = [held for held in pool if _priority(held.pod.pod) <= highest]
        for count in range(1, len(within) + 1):
            choices = [found for found in combinations(within, count) if any(held.pod.uid in top for held in found)]
            ranked = sorted(((rank(choice), choice) for choice in choices), key=lambda found: found[0])
            for _, equals in groupby(ranked, key=lambda found: found[0][:2]):
                yield [choice for _, choice in equals]


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _may_go(held: Holding, pod: Pod) -> bool:
    """Whether evicting one helps the other; kube-scheduler takes none that has ended for a victim, and fails the call."""
    return held.hidden == 0 and _priority(held.pod.pod) < _priority(pod) and not has_ended(held.pod.pod)


def _takes(pod: Pod) -> Counter[str] | None:
    """Return what the pod takes of every resource, `None` where nobody can tell."""
    try:
        return requests(pod)
    except ValueError:
        return None
