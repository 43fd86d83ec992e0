"""What filter and prioritize would say of a pod now; nothing is held, offered or remembered for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from extender.cluster.objects.constraints import why_not
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.verbs.filter_prioritize import STEPS_BACK
from extender.verbs.names import Names
from extender.verbs.pod_context import PodContext
from extender.verbs.preparing import prepare
from extender.verbs.ranking import Ranking
from topology.effort import Allowance, Search
from topology.errors import RequestError
from topology.placement.verdict import Placement, Reason, Rejection

STEPPING_BACK = Rejection(
    Reason.CLOSED, STEPS_BACK, remedy="it is offered again where no other one fits, and in a while"
)


def prepare_judgement(state: ClusterState, pod: Pod, now: Instant) -> Search[None]:
    """Decide on all nodes for a pod in slices, so that `Judgement.of` only looks up."""
    with suppress(RequestError):
        yield from prepare(state, PodContext.read(state, pod, now), Allowance())


@dataclass(frozen=True, slots=True)
class Judgement:
    """One pod, put to all nodes."""

    ranking: Ranking
    away: tuple[str, ...]
    """Nodes that step back from the pod."""
    barred: Mapping[str, Rejection]
    """Nodes that labels or taints keep the pod from: kube-scheduler would not ask about them."""

    @classmethod
    def of(cls, state: ClusterState, context: PodContext) -> Self:
        """Put the pod to all nodes, with as much searching as one call may do."""
        looks = ((name, why_not(context.pod, view.node)) for name, view in state.views.items())
        barred = {name: why for name, why in looks if why}
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
