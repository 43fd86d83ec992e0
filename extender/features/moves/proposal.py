"""What moving would do for one pod that waits: who would go where, at which cost. Nothing is written. No I/O."""

from __future__ import annotations

from functools import partial

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import Jobs
from extender.features.moves.movable import BudgetsOfPods, is_alone, may_go_together, movable_pods
from extender.features.moves.search import MOST_WAIT_SECONDS
from extender.features.moves.settings import MovesSettings
from extender.inspect.inspection import Answer
from extender.kit.clock import Instant
from extender.planning.moves import MovePlan, plan_moves
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.queue import NodesOfCluster, on_their_way
from extender.planning.units import PendingPod
from extender.verbs.pod_context import PodContext
from topology.bandwidth.rings import members_of
from topology.effort import finish
from topology.errors import RequestError


class ProposedMove(Answer):
    """A pod that would move."""

    namespace: str
    name: str
    node: str
    gpus: tuple[int, ...]
    """Positions of the GPUs that it has now."""
    to_node: str
    to_gpus: tuple[int, ...]
    cost_gpu_seconds: float


class StayingPods(Answer):
    """Movable pods that stay for one reason."""

    reason: str
    pods: int


class MoveProposal(Answer):
    """Who would move for a pod that waits."""

    namespace: str
    name: str
    node: str | None = None
    """Where it would go; `None`: moving does not help."""
    gpus: tuple[int, ...] = ()
    moves: tuple[ProposedMove, ...] = ()
    """None, though there is a node: the pod fits without."""
    cost_gpu_seconds: float = 0.0
    gain_gpu_seconds: float = 0.0
    """What it is worth that the pod need not wait; no plan costs more."""
    movable: int = 0
    """Pods that may move for it."""
    stay: tuple[StayingPods, ...] = ()
    """Movable pods that stay, by reason."""
    problem: str | None = None
    """Why no plan can be made for such a pod."""
    budgets_known: bool = True


def propose(
    state: ClusterState, pod: GpuPod, now: Instant, wait_seconds: float, jobs: Jobs, settings: MovesSettings
) -> MoveProposal:
    """Return who would have to move so that a pod fits.

    Args:
        state: The cluster.
        pod: The pod that waits.
        now: This moment.
        wait_seconds: How long it would wait otherwise; at most an hour counts.
        jobs: What has been read of Jobs; learns which ones are to be read.
        settings: Of the extender.

    """
    namespace, name = pod.key
    proposal = MoveProposal(namespace=namespace, name=name, budgets_known=state.budgets.known)
    try:
        context = PodContext.read(state, pod.pod, now)
    except RequestError as error:
        return proposal.model_copy(update={"problem": str(error)})
    if problem := _problem(pod, context):
        return proposal.model_copy(update={"problem": problem})
    waiting = PendingPod(pod.pod, context.request, tuple(context.away(state)))
    nodes = PlannedNodes(NodesOfCluster(state), on_their_way(state, now))
    if fitting := finish(nodes.place(pod.pod, context.request, waiting.avoided)):
        return proposal.model_copy(update={"node": fitting[0], "gpus": fitting[1].gpus})
    gain = waiting.gpus * min(wait_seconds, MOST_WAIT_SECONDS)
    budgets_of = BudgetsOfPods(state.budgets)
    movable = finish(movable_pods(state, pod, now, settings.patience, budgets_of, jobs))
    plan = finish(plan_moves(nodes, waiting, movable.pods, gain, partial(may_go_together, budgets_of)))
    stay = tuple(StayingPods(reason=reason.value, pods=count) for reason, count in sorted(movable.stay.items()))
    proposal = proposal.model_copy(update={"movable": len(movable.pods), "stay": stay, "gain_gpu_seconds": gain})
    return proposal.model_copy(update=_outcome(plan)) if plan else proposal


def _problem(pod: GpuPod, context: PodContext) -> str | None:
    if pod.node is not None:
        return f"it runs on {pod.node}"
    if not pod.gpus or pod.profile or pod.shares:
        return "only pods that request whole GPUs get room"
    if not is_alone(context):
        return "it is in a group, and room is made for single pods only"
    return None


def _outcome(plan: MovePlan) -> dict[str, object]:
    moves = tuple(
        ProposedMove(
            namespace=place.pod.metadata.namespace,
            name=place.pod.metadata.name,
            node=moved.node,
            gpus=members_of(moved.gpus),
            to_node=place.node,
            to_gpus=place.placement.gpus,
            cost_gpu_seconds=moved.cost_gpu_seconds,
        )
        for moved, place in plan.moves
    )
    return {
        "node": plan.target.node,
        "gpus": plan.target.placement.gpus,
        "moves": moves,
        "cost_gpu_seconds": plan.cost_gpu_seconds,
    }
