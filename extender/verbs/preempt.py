"""preempt: of the pods that may have to go, those whose GPUs form the set that is asked for.

kube-scheduler offers candidate nodes, each with victims that it has counted out; which GPUs they hold it does not know. Per node
the answer names the least important victims that are enough: the highest priority among them as low as can be, then as few as
can be, then offered ones rather than others, then the bandwidth that is gained. Others are named only where the offered ones are
not enough. A node where no victims help is left out.

What kube-scheduler has reasons for that we cannot see stays as it was: victims without GPUs go in any case, and what is freed of
every resource is at least what was offered, or what the pod asks for. `NumPDBViolations` stays as given: it may have spared a pod
for its disruption budget, which is one more reason to keep to those that were offered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby

from extender.clock import Instant
from extender.cluster.holdings import Holding
from extender.cluster.node_view import NodeView
from extender.cluster.objects import Pod
from extender.cluster.pods import has_ended
from extender.cluster.quantities import requests
from extender.cluster.state import ClusterState
from extender.verbs.asked import Asked
from extender.verbs.wire import ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, MetaVictims
from topology.errors import RequestError
from topology.placement.verdict import Placement
from topology.request import GpuRequest

EXACT_PODS = 8
"""Up to so many pods that may be evicted from a node every choice is looked at; of more, one after the other is spared."""

Choice = tuple[Holding, ...]


def preempt(state: ClusterState, args: ExtenderPreemptionArgs, now: Instant) -> ExtenderPreemptionResult:
    """Return the nodes where evictions help, each with its victims; no node, no preemption."""
    try:
        asked = Asked.read(state, args.pod, now)
        if not asked.request.gpus:
            return ExtenderPreemptionResult(args.candidates)
        need = requests(args.pod)
    except (RequestError, ValueError):
        return ExtenderPreemptionResult({})
    answer: dict[str, MetaVictims] = {}
    helpful = asked.may_make_room_on(state, args.candidates)
    for name, offered in args.candidates.items():
        view = state.views.get(name) if name in helpful else None
        if view is not None and (victims := _Node(view, args.pod, asked.request, need, offered.uids).victims()):
            answer[name] = MetaVictims([MetaPod(uid) for uid in victims], offered.num_pdb_violations)
    return ExtenderPreemptionResult(answer)


class _Node:
    """One candidate node."""

    def __init__(
        self, view: NodeView, pod: Pod, request: GpuRequest, need: Counter[str], offered: Sequence[str]
    ) -> None:
        self._view = view
        self._request = request
        self._offered = offered
        self._evictable = tuple(held for held in view.holdings if _may_go(held, pod))
        known = {held.pod.uid for held in self._evictable}
        self._in_any_case = [uid for uid in offered if uid not in known]
        self._takes = {held.pod.uid: _takes(held.pod.pod) for held in self._evictable}
        self._offered_ones = tuple(held for held in self._evictable if held.pod.uid in offered)
        freed = self._freed(self._offered_ones)
        self._least = freed & need if freed is not None else None

    def victims(self) -> list[str]:
        """Return the UIDs of those who have to go, by falling priority; none if that does not help."""
        if self._view.shape.closed:
            return []
        for pool in (self._offered_ones, self._evictable):
            if self._gain(pool) is not None:
                chosen = self._best(pool) if len(pool) <= EXACT_PODS else self._spared(pool)
                return self._in_order(chosen) if chosen is not None else []
        return []

    def _best(self, pool: Choice) -> Choice | None:
        """Look at all choices, from the least important to the most."""
        ranked = sorted((self._importance(choice), choice) for choice in _choices(pool) if self._frees_enough(choice))
        for _, equals in groupby(ranked, key=lambda found: found[0][:4]):
            gains = [(gain, choice) for _, choice in equals if (gain := self._gain(choice)) is not None]
            if gains:
                return max(gains, key=lambda found: found[0])[1]
        return None

    def _spared(self, pool: Choice) -> Choice | None:
        """Begin with everybody, and spare one after the other, the most important first."""
        kept = sorted(pool, key=lambda held: (-_priority(held.pod.pod), held.pod.uid))
        for held in tuple(kept):
            fewer = tuple(other for other in kept if other is not held)
            if self._gain(fewer) is not None:
                kept = list(fewer)
        return tuple(kept)

    def _importance(self, choice: Choice) -> tuple[int, int, int, int, tuple[str, ...]]:
        priorities = [_priority(held.pod.pod) for held in choice]
        added = sum(held.pod.uid not in self._offered for held in choice)
        uids = tuple(held.pod.uid for held in choice)
        return max(priorities, default=-(2**31)), len(choice), added, sum(priorities), uids

    def _gain(self, choice: Choice) -> float | None:
        """Return the bandwidth of the set that the evictions make room for, GB/s; `None` when they do not help."""
        uids = frozenset((*(held.pod.uid for held in choice), *self._in_any_case))
        if not uids or not self._frees_enough(choice):
            return None
        verdict = self._view.without(uids).decide(self._request)
        if not isinstance(verdict, Placement):
            return None
        return verdict.bandwidth.point if verdict.bandwidth else 0.0

    def _frees_enough(self, choice: Choice) -> bool:
        freed = self._freed(choice)
        if freed is None or self._least is None:  # nobody can tell what somebody takes: then only more will do
            return {uid for uid in self._offered if uid not in self._in_any_case} <= {held.pod.uid for held in choice}
        return all(freed[resource] >= least for resource, least in self._least.items())

    def _freed(self, choice: Choice) -> Counter[str] | None:
        freed: Counter[str] = Counter()
        for held in choice:
            takes = self._takes[held.pod.uid]
            if takes is None:
                return None
            freed.update(takes)
        return freed

    def _in_order(self, choice: Choice) -> list[str]:
        """Keep the order in which victims were offered, and put the others in by priority: the first counts as the highest."""
        priorities: Mapping[str, int] = {held.pod.uid: _priority(held.pod.pod) for held in self._evictable}
        chosen = {held.pod.uid for held in choice}
        order = [uid for uid in self._offered if uid in chosen or uid in self._in_any_case]
        for uid in sorted(chosen.difference(order), key=lambda uid: (-priorities[uid], uid)):
            lower = (at for at, other in enumerate(order) if priorities.get(other, priorities[uid]) < priorities[uid])
            order.insert(next(lower, len(order)), uid)
        return order


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


def _choices(pool: Choice) -> Iterator[Choice]:
    for count in range(len(pool) + 1):
        yield from combinations(pool, count)
