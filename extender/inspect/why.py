"""Why a pod waits, node by node: the rule that is broken there, the figures, and what would make the pod fit.

And why a pod that waits no more is where it is: what its node was preferred to.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from pydantic import Field

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.state import ClusterState
from extender.inspect.decisions import Decision, Decisions
from extender.inspect.groups import GroupInfo, group_info
from extender.inspect.inspection import Answer, BestSet, PodInfo, best_set, node_names, pod_info
from extender.inspect.judgement import Barred, Judgement
from extender.inspect.new_nodes import NewNodes, new_nodes
from extender.inspect.notes import PodNote
from extender.inspect.other_schedulers import scheduler_problem
from extender.inspect.taken import who_has
from extender.kit.clock import Instant
from extender.verbs.pod_context import PodContext
from topology.errors import RequestError
from topology.placement.verdict import Placement, Reason, Rejection

_FORGOTTEN: Final = (
    "--extender asks the extender that bound it for the second-best node: 15 s later, and for its last 1,000 pods"
)


class NodeVerdict(Answer):
    """What one node says to the pod."""

    node: str
    fits: bool
    reason: str | None = None
    """Of a refusal, in one word."""
    message: str = ""
    """The rule that is broken."""
    figures: str = ""
    """What the node has instead."""
    remedy: str = ""
    """What would make the pod fit."""
    best: BestSet | None = None
    """The GPUs that the pod would get; `None` where it does not fit."""
    score: float | None = None


class Why(Answer):
    """One pod and what nodes say to it; `next` is what to ask for `after` to get the nodes that follow."""

    pod: PodInfo
    group: GroupInfo | None = None
    new_nodes: NewNodes | None = None
    """`None` where no group of nodes is known."""
    problem: str | None = None
    """What is wrong with the pod itself."""
    scheduler_problem: str | None = Field(default=None, exclude_if=lambda problem: problem is None)
    """That the pod waits for a scheduler which does not ask us: the verdicts are those if it named ours."""
    notes: tuple[PodNote, ...] = Field(default=(), exclude_if=lambda notes: not notes)
    """What features say of the pod."""
    nodes: tuple[NodeVerdict, ...] = ()
    next: str | None = None
    decision: Decision | None = None
    """Of a pod on its node; `None` where nobody asked remembers it."""
    estimate: bool = False
    """Worked out from annotations alone, without what only a running extender knows."""

    @property
    def fits(self) -> bool:
        """Whether one of these nodes will do."""
        return any(verdict.fits for verdict in self.nodes)

    @property
    def choice(self) -> tuple[str, ...]:
        """How its node was chosen, for people; empty as long as it has none."""
        if self.decision:
            return self.decision.line, self.decision.instead
        return (_FORGOTTEN,) if self.pod.node else ()


def why(
    state: ClusterState,
    namespace: str,
    name: str,
    now: Instant,
    *,
    node: str = "",
    after: str = "",
    limit: int,
    decisions: Decisions | None = None,
    barred: Barred | None = None,
) -> Why | None:
    """Say what each node says to a pod, at most `limit` of them by name; `None` when the pod is not known.

    Args:
        state: The cluster.
        namespace: The pod's.
        name: The pod's.
        now: This moment.
        node: That one alone, GPUs or not; else all that have to do with GPUs.
        after: Nodes whose names follow this one.
        limit: Nodes at most.
        decisions: What is remembered of pods that were bound.
        barred: What `prepare_judgement` has returned, if it was called.

    """
    gpu_pod = state.pods.find(namespace, name)
    if gpu_pod is None:
        return None
    pod = pod_info(state, gpu_pod)
    try:
        context = PodContext.read(state, gpu_pod.pod, now)
    except RequestError as error:
        return Why(pod=pod, problem=str(error), scheduler_problem=scheduler_problem(state, gpu_pod.pod))
    if gpu_pod.node is not None:
        return Why(pod=pod, group=group_info(state, context), decision=decisions.of(gpu_pod.uid) if decisions else None)
    names = [node] if node else list(islice(node_names(state, after=after), limit + 1))
    held = state.holds.others(gpu_pod.uid, now.monotonic)
    verdicts = Judgement.of(state, context, barred).verdicts(names[:limit])
    return Why(
        pod=pod,
        group=group_info(state, context),
        new_nodes=new_nodes(state, context),
        scheduler_problem=scheduler_problem(state, gpu_pod.pod),
        nodes=tuple(_verdict(state, context, held, name, verdict) for name, verdict in verdicts.items()),
        next=names[limit - 1] if len(names) > limit else None,
    )


def _verdict(
    state: ClusterState, context: PodContext, held: Mapping[str, Held], name: str, verdict: Placement | Rejection
) -> NodeVerdict:
    if isinstance(verdict, Placement):
        return NodeVerdict(node=name, fits=True, best=best_set(state.views[name], verdict), score=verdict.score)
    taken = ""
    if verdict.reason is Reason.TOO_FEW_FREE and not context.request.is_share:
        taken = who_has(state.views[name], held.get(name, NOTHING).touched)
    return NodeVerdict(
        node=name,
        fits=False,
        reason=verdict.reason,
        message=verdict.message,
        figures="; ".join(filter(None, (verdict.figures, taken))),
        remedy=verdict.remedy,
    )
