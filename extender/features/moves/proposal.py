"""What moving would do for a pod that waits, or for its gang: who would go where, at which cost. Nothing is written. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.candidates.holds import Held
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.features.moves.candidates import MOST_MEMBERS
from extender.features.moves.jobs import Jobs
from extender.features.moves.movable import is_alone, may_go_together, movable_pods
from extender.features.moves.search import MOST_WAIT_SECONDS
from extender.features.moves.settings import MovesSettings
from extender.inspect.inspection import Answer
from extender.kit.clock import Instant
from extender.planning.gangs import place_unit
from extender.planning.moves import MovePlan, plan_room
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.queue import NodesOfCluster, PlacesOfUnits, on_their_way
from extender.planning.units import Assignment, PendingPod, Unit
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
    part: str = ""
    """What it has of them, such as `10 GiB of GPU 3`; empty: all."""
    to_node: str
    to_gpus: tuple[int, ...]
    to_part: str = ""
    cost_gpu_seconds: float


class ProposedPlace(Answer):
    """Where a pod of a gang would go."""

    namespace: str
    name: str
    node: str
    gpus: tuple[int, ...]
    """Positions."""
    part: str = ""
    """As of a move."""


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
    part: str = ""
    """As of a move."""
    gang: tuple[ProposedPlace, ...] = ()
    """Where the pods of its gang would go, this one included; empty where it is in none."""
    moves: tuple[ProposedMove, ...] = ()
    """Empty although there is a node: there is room without moves."""
    cost_gpu_seconds: float = 0.0
    gain_gpu_seconds: float = 0.0
    """What it is worth that the pod, or its gang, need not wait; no plan costs more."""
    movable: int = 0
    """Pods that may move for it."""
    stay: tuple[StayingPods, ...] = ()
    """Movable pods that stay, by reason."""
    problem: str | None = None
    """Why no plan can be made for such a pod."""
    budgets_known: bool = True


def propose(
    state: ClusterState,
    pod: GpuPod,
    gang: Unit | None,
    now: Instant,
    wait_seconds: float,
    jobs: Jobs,
    settings: MovesSettings,
) -> MoveProposal:
    """Return who would have to move so that a pod fits, or its gang.

    Args:
        state: The cluster.
        pod: The pod that waits.
        gang: Its gang, if all of that waits in the queue.
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
    if problem := _problem(pod, context, gang):
        return proposal.model_copy(update={"problem": problem})
    unit = gang or Unit.alone(PendingPod(pod.pod, context.request, tuple(context.away(state))))
    nodes, places_of = PlannedNodes(NodesOfCluster(state), on_their_way(state, now)), PlacesOfUnits(state)
    if targets := finish(place_unit(nodes, places_of(unit), unit, enters=True)):
        return proposal.model_copy(update=_targets(state, pod, gang, targets))
    gain = unit.gpus * min(wait_seconds, MOST_WAIT_SECONDS)
    budgets = BudgetsOfPods(state.budgets)
    movable = finish(movable_pods(state, unit.priority, now, settings.patience, budgets, jobs))
    plan = finish(plan_room(nodes, places_of, unit, movable.pods, gain, partial(may_go_together, budgets)))
    stay = tuple(StayingPods(reason=reason.value, pods=count) for reason, count in sorted(movable.stay.items()))
    proposal = proposal.model_copy(update={"movable": len(movable.pods), "stay": stay, "gain_gpu_seconds": gain})
    if plan is None:
        return proposal
    worth = {"gain_gpu_seconds": gain * plan.gpus / unit.gpus}
    return proposal.model_copy(update=_targets(state, pod, gang, plan.targets) | _moves(state, plan) | worth)


def _problem(pod: GpuPod, context: PodContext, gang: Unit | None) -> str | None:
    if pod.node is not None:
        return f"it runs on {pod.node}"
    if not (pod.gpus or pod.shares):
        return "it requests no GPU"
    if gang is None and not is_alone(context):
        return "it is in a group, and room is made for single pods, and for gangs that wait as a whole in the queue"
    if gang and len(gang.members) > MOST_MEMBERS:
        return f"its gang has more than {MOST_MEMBERS} pods"
    return None


def _targets(state: ClusterState, pod: GpuPod, gang: Unit | None, targets: Sequence[Assignment]) -> dict[str, object]:
    """Return where the pod goes, and its gang.

    The pod may have no place in an elastic gang. Then the place of the first member with one stands for it.
    """
    own = next((target for target in targets if target.pod.metadata.uid == pod.uid), targets[0])
    places = tuple(
        ProposedPlace(
            namespace=target.pod.metadata.namespace,
            name=target.pod.metadata.name,
            node=target.node,
            **_words(state, target.node, target.held, target.placement.gpus),
        )
        for target in targets
    )
    words = _words(state, own.node, own.held, own.placement.gpus)
    return {"node": own.node, **words, "gang": places if gang else ()}


def _moves(state: ClusterState, plan: MovePlan) -> dict[str, object]:
    moves = tuple(
        ProposedMove(
            namespace=place.pod.metadata.namespace,
            name=place.pod.metadata.name,
            node=moved.node,
            **_words(state, moved.node, moved.held, members_of(moved.held.touched)),
            to_node=place.node,
            **_words(state, place.node, place.held, place.placement.gpus, "to_"),
            cost_gpu_seconds=moved.cost_gpu_seconds,
        )
        for moved, place in plan.moves
    )
    return {"moves": moves, "cost_gpu_seconds": plan.cost_gpu_seconds}


def _words(state: ClusterState, name: str, held: Held, positions: Sequence[int], prefix: str = "") -> dict[str, Any]:
    """Return the positions of GPUs, those of slices included, and in words what is held of each if that is a part."""
    view = state.views.get(name)
    node = view.shape.topology_class.node if view and view.shape.topology_class else None
    gib, gpus, parts = Counter[int](), list[int](), list[str]()
    for position, share_gib, _ in held.shares:
        gib[position] += share_gib
    for position in positions:
        mig_slice = node.slices[position - len(node)] if node and position >= len(node) else None
        gpu = node.positions[mig_slice.gpu] if node and mig_slice else position
        gpus.append(gpu)
        if mig_slice or position in gib:
            parts.append(f"{mig_slice.profile if mig_slice else f'{gib[position]} GiB'} of GPU {gpu}")
    return {f"{prefix}gpus": tuple(dict.fromkeys(gpus)), f"{prefix}part": ", ".join(parts)}
