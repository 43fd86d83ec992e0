"""preempt: of the pods that may have to go, those whose GPUs form the set that is asked for.

kube-scheduler offers candidate nodes, each with victims that it has counted out; which GPUs they hold it does not know. Per node
the answer names the least important victims that are enough: the highest priority among them as low as can be, then as few as
can be, then offered ones rather than others, then the bandwidth that is gained. A node where no victims help is left out.

What kube-scheduler has reasons for that we cannot see stays as it was: victims without GPUs go in any case, and what is freed of
every resource is at least what was offered, or what the pod asks for. `NumPDBViolations` stays as given; a victim that was not
offered has lower priority than the pod, like all others, and was spared by count alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby

from extender.clock import Instant
from extender.cluster.holdings import Holding
from extender.cluster.node_view import NodeView
from extender.cluster.objects import Pod
from extender.cluster.pods import read_request
from extender.cluster.quantities import requests
from extender.cluster.state import ClusterState
from extender.verbs.wire import ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, MetaVictims
from topology.errors import RequestError
from topology.placement import Placement
from topology.request import GpuRequest

EXACT_PODS = 8
"""Up to so many pods that may be evicted from a node every choice is looked at; of more, one after the other is spared."""

Choice = tuple[Holding, ...]


def preempt(state: ClusterState, args: ExtenderPreemptionArgs, now: Instant) -> ExtenderPreemptionResult:
    """Return the nodes where evictions help, each with its victims; no node, no preemption."""
    try:
        request = read_request(args.pod, state.resource)
        need = requests(args.pod)
    except (RequestError, ValueError):
        return ExtenderPreemptionResult({})
    wish = request.at_age(now.age_seconds(args.pod.metadata.creation_timestamp))
    answer: dict[str, MetaVictims] = {}
    for name, offered in args.candidates.items():
        view = state.views.get(name)
        if not wish.gpus:
            answer[name] = offered
        elif view is not None and (victims := _Node(view, args.pod, wish, need, offered.uids).victims()):
            answer[name] = MetaVictims([MetaPod(uid) for uid in victims], offered.num_pdb_violations)
    return ExtenderPreemptionResult(answer)


class _Node:
    """One candidate node."""

    def __init__(self, view: NodeView, pod: Pod, wish: GpuRequest, need: Counter[str], offered: Sequence[str]) -> None:
        self._view = view
        self._wish = wish
        self._offered = offered
        self._evictable = [
            held for held in view.holdings if held.hidden == 0 and _priority(held.pod.pod) < _priority(pod)
        ]
        known = {held.pod.uid for held in self._evictable}
        self._in_any_case = [uid for uid in offered if uid not in known]
        freed = _freed(held for held in self._evictable if held.pod.uid in offered)
        self._least = freed & need if freed is not None else None

    def victims(self) -> list[str]:
        """Return the UIDs of those who have to go, by falling priority; none if that does not help."""
        if self._view.shape.closed or self._gain(tuple(self._evictable)) is None:
            return []
        chosen = self._best() if len(self._evictable) <= EXACT_PODS else self._spared()
        return self._in_order(chosen) if chosen is not None else []

    def _best(self) -> Choice | None:
        """Look at all choices, from the least important to the most."""
        for _, equals in groupby(sorted(self._choices(), key=self._importance), key=lambda c: self._importance(c)[:4]):
            gains = [(gain, choice) for choice in equals if (gain := self._gain(choice)) is not None]
            if gains:
                return max(gains, key=lambda found: found[0])[1]
        return None

    def _spared(self) -> Choice | None:
        """Begin with everybody, and spare one after the other, the most important first."""
        kept = sorted(self._evictable, key=lambda held: (-_priority(held.pod.pod), held.pod.uid))
        for held in tuple(kept):
            fewer = tuple(other for other in kept if other is not held)
            if self._gain(fewer) is not None:
                kept = list(fewer)
        return tuple(kept)

    def _choices(self) -> Iterator[Choice]:
        for count in range(len(self._evictable) + 1):
            yield from combinations(self._evictable, count)

    def _importance(self, choice: Choice) -> tuple[int, int, int, int, tuple[str, ...]]:
        priorities = [_priority(held.pod.pod) for held in choice]
        strangers = sum(held.pod.uid not in self._offered for held in choice)
        uids = tuple(held.pod.uid for held in choice)
        return max(priorities, default=-(2**31)), len(choice), strangers, sum(priorities), uids

    def _gain(self, choice: Choice) -> float | None:
        """Return the bandwidth of the set that the evictions make room for, GB/s; `None` when they do not help."""
        uids = frozenset((*(held.pod.uid for held in choice), *self._in_any_case))
        if not uids or not self._frees_enough(choice):
            return None
        verdict = self._view.without(uids).plan(self._wish)
        if not isinstance(verdict, Placement):
            return None
        return verdict.bandwidth.point if verdict.bandwidth else 0.0

    def _frees_enough(self, choice: Choice) -> bool:
        freed = _freed(choice)
        if freed is None or self._least is None:  # nobody can tell what somebody takes: then only more will do
            return {uid for uid in self._offered if uid not in self._in_any_case} <= {held.pod.uid for held in choice}
        return all(freed[resource] >= least for resource, least in self._least.items())

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


def _freed(holdings: Iterable[Holding]) -> Counter[str] | None:
    freed: Counter[str] = Counter()
    try:
        for held in holdings:
            freed.update(requests(held.pod.pod))
    except ValueError:
        return None
    return freed
