"""preempt: of the pods that may have to go, those whose GPUs form the set that is asked for.

kube-scheduler offers candidate nodes, each with victims that it has counted out; which GPUs they hold it does not know.
Per node the answer names the victims that are enough (`Candidate`), in an order of costs (`cost`). A node where no
victims help is left out. So is one where a group would be torn apart, where kube-scheduler could as well take another
that spares it. `NumPDBViolations` is counted anew; where we may not read PodDisruptionBudgets it stays as given.

kube-scheduler takes one node of the answer, and schedules nothing before it has the answer. So there is a time by which the best
that was found is the answer. Nodes that promise the cheapest victims are looked at first, and one that takes long lets the others
go before it. Between turns other calls are served, and the cluster changes. Still a call is about the moment when it
came, which is nearest to what kube-scheduler sees. A victim that kube-scheduler does not know would fail the call. What
changes on a node meanwhile can only take that node out of the answer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from extender.cluster.node_view import NodeView
from extender.cluster.objects.quantities import requests
from extender.cluster.state import ClusterState
from extender.kit.clock import Clock
from extender.verbs.cost import Protection
from extender.verbs.pod_context import PodContext
from extender.verbs.victims import Candidate
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from topology.errors import RequestError

PAUSE_SECONDS = 0.002
"""How long the work goes on without a pause."""
SHARE = 1 / 2
"""Of the time that is left: how long one node is looked at before others have their turn."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """What came of a call."""

    victims: dict[str, MetaVictims] = field(default_factory=dict)
    """By node; no node, no preemption."""
    unfinished: int = 0
    """Nodes for which the time was too short."""


def preempt(
    state: ClusterState, args: ExtenderPreemptionArgs, clock: Clock, *, budget_seconds: float
) -> Generator[None, None, Preemption]:
    """Return the nodes where evictions help, each with its victims; a step takes about `PAUSE_SECONDS`, or one decision.

    Args:
        state: The cluster, which may change between steps.
        args: The pod, and the nodes that are offered.
        clock: Tells when a pause is due, and when the time is up.
        budget_seconds: How long to search.

    """
    now = clock()
    try:
        context = PodContext.read(state, args.pod, now)
        if not context.request.asks:
            return Preemption(args.candidates)
        need = requests(args.pod)
    except (RequestError, ValueError):
        return Preemption()
    protection = Protection(state.indexes.groups, state.budgets if state.budgets.known else None)
    return (yield from _Search(state, context, need, args.candidates, protection, clock).run(budget_seconds))


@dataclass(frozen=True, slots=True)
class _Search:
    """One call of a pod that wants GPUs, or shares of them."""

    state: ClusterState
    asked: PodContext
    need: Counter[str]
    offered: dict[str, MetaVictims]
    protection: Protection
    clock: Clock

    def run(self, seconds: float) -> Generator[None, None, Preemption]:
        """Look at the nodes, each as it is now, for so long."""
        end, pause = self.clock().monotonic + seconds, _Alarm(self.clock, PAUSE_SECONDS)
        queue, finished = deque((yield from self._works(pause))), list[_Work]()
        while queue and (left := end - self.clock().monotonic) > 0:
            work, turn = queue.popleft(), _Alarm(self.clock, left * SHARE)
            while not (is_done := self._step(work)) and not turn.is_due():
                if pause.is_due():
                    yield
            if pause.is_due():
                yield
            if not is_done:
                queue.append(work)
            elif work.victims:
                finished.append(work)
        helping = [work for work in finished if self._still_helps(work)]
        return Preemption({work.name: work.answer for work in _sparing_groups(helping)}, len(queue))

    def _step(self, work: _Work) -> bool:
        with self.state.effort.bounded():
            return work.step()

    def _works(self, pause: _Alarm) -> Generator[None, None, list[_Work]]:
        """Return what there is to do, the most promising first; what happens in a pause makes no difference."""
        helpful, views = self.asked.may_evict_on(self.state, self.offered), self.state.views
        works = []
        for name, view in [(name, views[name]) for name in self.offered if name in helpful and name in views]:
            works.append(_Work(name, self._candidate(name, view), self.offered[name].num_pdb_violations))
            if pause.is_due():
                yield
        return sorted(works, key=lambda work: work.promise)

    def _candidate(self, name: str, view: NodeView) -> Candidate:
        return Candidate(view, self.asked.pod, self.asked.request, self.need, self.offered[name].uids, self.protection)

    def _still_helps(self, work: _Work) -> bool:
        view = self.state.views.get(work.name)
        if view is None or view is work.candidate.view:
            return view is not None
        with self.state.effort.bounded():
            return self._candidate(work.name, view).still_helps(work.victims or (), work.candidate)


class _Work:
    """One node of a call, and how far it has come."""

    def __init__(self, name: str, candidate: Candidate, violations: int) -> None:
        self.name = name
        self.candidate = candidate
        self.promise = violations, *candidate.bound
        """What kube-scheduler compares nodes by, as far as a glance tells."""
        self.victims: list[str] | None = None
        """`None`: not known yet."""
        self._violations = violations
        self._search = candidate.search()

    @property
    def answer(self) -> MetaVictims:
        """What is said of the node."""
        uids = self.victims or ()
        return MetaVictims([MetaPod(uid) for uid in uids], self.candidate.violations(uids, self._violations))

    @property
    def price(self) -> tuple[int, int, int]:
        """What kube-scheduler compares nodes by first, and the groups that are torn apart."""
        cost = self.candidate.cost
        return (self.answer.num_pdb_violations, cost.highest, cost.torn) if cost else (0, 0, 0)

    def step(self) -> bool:
        """Work on; returns whether it is done."""
        try:
            next(self._search)
        except StopIteration as end:
            self.victims = end.value
        return self.victims is not None


def _sparing_groups(works: Sequence[_Work]) -> list[_Work]:
    """Leave out the nodes where a group is torn apart that are as good otherwise as one where none is, or fewer are."""
    if not works:
        return []
    *best, least = min(work.price for work in works)
    return [work for work in works if [*work.price[:2]] != best or work.price[2] == least]


class _Alarm:
    """Goes off after some time, and again after as long."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._due = clock().monotonic + seconds

    def is_due(self) -> bool:
        """Whether the time is over; then the next one has begun."""
        now = self._clock().monotonic
        if now < self._due:
            return False
        self._due = now + self._seconds
        return True
