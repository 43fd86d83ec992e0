"""What filter and prioritize would say of a pod now; nothing is held, offered or remembered for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from extender.cluster.objects.constraints import why_not
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.verbs.filter_prioritize import STEPS_BACK
from extender.verbs.names import Names
from extender.verbs.pod_context import PodContext
from extender.verbs.preparing import prepare
from extender.verbs.ranking import Ranking
from topology.effort import Allowance, Search, finish
from topology.errors import RequestError
from topology.placement.verdict import Placement, Reason, Rejection

NODES_A_STEP: Final = 100
"""Whose labels and taints are read in one step: a millisecond."""
Barred = Mapping[str, Rejection]
"""Nodes that labels or taints keep a pod from: kube-scheduler would not ask about them."""
STEPPING_BACK = Rejection(
    Reason.CLOSED, STEPS_BACK, remedy="it is offered again where no other one fits, and in a while"
)


def prepare_judgement(state: ClusterState, pod: Pod, now: Instant) -> Search[Barred]:
    """Decide on all nodes for a pod in slices, so that `Judgement.of` only looks up; returns what it takes."""
    with suppress(RequestError):
        yield from prepare(state, PodContext.read(state, pod, now), Allowance())
    return (yield from barred_nodes(state, pod))


def barred_nodes(state: ClusterState, pod: Pod) -> Search[Barred]:
    """Return the nodes that a pod is kept from, in steps; nodes may come and go between them."""
    barred = dict[str, Rejection]()
    for number, (name, view) in enumerate([*state.views.items()], 1):
        if why := why_not(pod, view.node):
            barred[name] = why
        if number % NODES_A_STEP == 0:
            yield
    return barred


@dataclass(frozen=True, slots=True)
class Judgement:
    """One pod, put to all nodes."""

    ranking: Ranking
    away: tuple[str, ...]
    """Nodes that step back from the pod."""
    barred: Barred

    @classmethod
    def of(cls, state: ClusterState, context: PodContext, barred: Barred | None = None) -> Self:
        """Put the pod to all nodes, with as much searching as one call may do.

        `barred` is what `prepare_judgement` has returned a moment ago; `None`: find it out.
        """
        if barred is None:
            barred = finish(barred_nodes(state, context.pod))
        names = Names(frozenset(state.views), frozenset(barred))
        with state.effort.bounded():
            return cls(context.rank_for_now(state, names), tuple(context.away(state)), barred)

    def verdicts(self, names: Sequence[str]) -> dict[str, Placement | Rejection]:
        """Return the verdicts on these nodes, in their order."""
        verdicts = self.ranking.verdicts([name for name in names if name not in self.barred])
        if self.ranking.best not in self.away:
            fitting = (name for name in self.away if isinstance(verdicts.get(name), Placement))
            verdicts |= dict.fromkeys(fitting, STEPPING_BACK)
        return {name: self.barred.get(name) or verdicts[name] for name in names}
