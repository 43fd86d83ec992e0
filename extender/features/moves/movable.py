"""Which pods may move for one that waits, and what that costs. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from extender.cluster.caches.budgets import BudgetsOfPods
from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.given_back import Holders, given_back
from extender.cluster.objects.constraints import is_plain
from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.objects.group_words import is_started_with_others, restart_group_of
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import JobName, Jobs, JobVerdict
from extender.kit.clock import Instant
from extender.planning.moves import MOST_MOVES_FOR_GANG, MovablePod
from extender.planning.units import PendingPod
from extender.verbs.pod_context import PodContext
from topology.annotations import keys
from topology.effort import Search
from topology.errors import RequestError
from topology.request.words import duration

GRACE_SECONDS: Final = 30.0
"""Within which a pod ends that says nothing else."""
SWITCH_SECONDS: Final = GRACE_SECONDS + 60.0
"""Until a moved pod computes again: the usual time to end, and a minute to start."""
_FORBIDS: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations by which owners keep other programs from evicting a pod."""
NODES_AT_ONCE: Final = 32
"""In one step: about a millisecond."""
MOST_PEERS: Final = 8 * MOST_MOVES_FOR_GANG
"""Pods of one group that are looked at; not all of more can restart together, or these are too many to move."""
PODS_AT_ONCE: Final = 2
"""That may move, in one step: to look for the budgets of one takes 3 µs for each budget of its namespace."""
_OF_ONE_NODE: Final = ("DaemonSet", "Node")
"""Owners that create the next pod on the same node."""

_ONE_BY_ONE: Final = ("ReplicaSet", "StatefulSet", "ReplicationController", "Job")
"""Owners that replace one pod and leave their others alone; of a Job only if it counts no failure."""
_AS_A_WHOLE: Final = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "RayCluster", "PodClique")
"""Owners of pods that have been started with others, whatever labels say; JobSets own Jobs, LeaderWorkerSets StatefulSets."""


class Stays(StrEnum):
    """Why a pod that its owner calls movable stays where it is."""

    HIGHER_PRIORITY = "a higher priority than the pod that waits"
    NO_CONTROLLER = "no controller that would create a new pod on any node"
    JOB = "a Job that counts an eviction as a failure"
    UNREAD_JOB = "a Job that has not been read, or cannot be"
    WHOLE = "an owner that may restart all of its pods when one is evicted"
    LARGE = f"an owner that restarts as a whole, with more than {MOST_MOVES_FOR_GANG} pods"
    HALF = "an owner that restarts as a whole, of which other pods wait, end, or may not move"
    NEVER = "a restartPolicy `Never`, with which its owner may fail"
    UNKNOWN_OWNER = "an owner that is no ReplicaSet, StatefulSet or Job, nor named by `moves.movable.ownerKinds`"
    GROUP = "a group, which would have to move as a whole"
    FORBIDDEN = "an annotation that forbids evictions"
    CONSTRAINTS = "affinity, volume claims or resource claims"
    BUDGET = "a PodDisruptionBudget that allows no eviction"
    BUDGETS = "several PodDisruptionBudgets, with which Kubernetes evicts no pod"
    UNKNOWN_GPUS = "GPUs that are not its alone"
    UNFIT_GPUS = "GPUs that would not be free without it"
    UNREADABLE = "annotations that cannot be read"
    ANOTHER_SCHEDULER = "a scheduler that does not ask gputopo, and no gate: the next pod would go anywhere"
    GRACE = "a grace period of more than half of the time that a plan has"
    NO_GATE = "no way through the queue: the next pod would not wait for its new place"
    LIMITS = "limits of moves"
    REFUSED = "an eviction that was refused lately"


_OF_JOBS: Final = {
    JobVerdict.COUNTS: Stays.JOB,
    JobVerdict.OF_JOB_SET: Stays.WHOLE,
    JobVerdict.MANAGED: Stays.WHOLE,
    JobVerdict.UNREAD: Stays.UNREAD_JOB,
}
"""Why pods of a Job stay, by what is read of it."""


@dataclass(slots=True)
class Movable:
    """The pods that may move, and how many may not."""

    pods: list[MovablePod] = field(default_factory=list)
    stay: Counter[Stays] = field(default_factory=Counter)

    def take(self, moving: MovablePod | Stays) -> None:
        """Count one more pod."""
        if isinstance(moving, Stays):
            self.stay[moving] += 1
        else:
            self.pods.append(moving)


def movable_pods(
    state: ClusterState,
    priority: int,
    now: Instant,
    patience_seconds: float,
    budgets: BudgetsOfPods,
    jobs: Jobs,
    why_not: Callable[[GpuPod], Stays | None] = lambda _: None,
) -> Search[Movable]:
    """Return the pods that may move for pods that wait, of those that restart together all or none; linear in pods with GPUs.

    Args:
        state: The cluster.
        priority: The least of the pods that wait.
        now: This moment.
        patience_seconds: How long a plan may take; pods that take more than half of it to end stay.
        budgets: Those that protect pods.
        jobs: What has been read of Jobs; learns which ones are to be read.
        why_not: Says of a pod why it stays, if it does for a reason that the pods that wait have no part in.

    """
    movable, looked_at, seen, holders = Movable(), 0, dict[str, Stays | None](), Holders()

    def judged(pod: GpuPod) -> MovablePod | Stays:
        if reason := why_not(pod):
            return reason
        if _grace_seconds(pod) > patience_seconds / 2:
            return Stays.GRACE
        return movable_pod(state, pod, priority, now, budgets, jobs, holders)

    for number, view in enumerate([*state.views.values()]):
        if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
            yield
        for pod in state.pods.bound_to(view.name):
            if not (state.movable.include(pod.pod) and pod.is_alive):
                continue
            looked_at += 1
            if looked_at % PODS_AT_ONCE == 0:
                yield
            group = restart_group_of(pod.pod)
            if not group:
                movable.take(judged(pod))
                continue
            if group not in seen:
                together = yield from _together(state, group, judged)
                seen[group] = together if isinstance(together, Stays) else None
                movable.pods += [] if isinstance(together, Stays) else together
            if reason := seen[group]:
                movable.take(reason)
    return movable


def _together(
    state: ClusterState, restart_group: str, judged: Callable[[GpuPod], MovablePod | Stays]
) -> Search[list[MovablePod] | Stays]:
    """Return all pods that restart together, or why they stay; one pod in a step."""
    uids = state.indexes.restart_groups.members(restart_group)
    if len(uids) > MOST_MOVES_FOR_GANG:
        return Stays.LARGE
    together = list[MovablePod]()
    for uid in sorted(uids):
        pod = state.pods.get(uid)
        if pod is None or not (pod.is_alive and pod.node and state.movable.include(pod.pod)):
            return Stays.HALF
        moving = judged(pod)
        if isinstance(moving, Stays):
            return moving
        together.append(moving)
        yield
    return together


def movable_pod(
    state: ClusterState,
    pod: GpuPod,
    priority: int,
    now: Instant,
    budgets: BudgetsOfPods,
    jobs: Jobs,
    holders: Holders,
) -> MovablePod | Stays:
    """Return a bound pod as one that may move for pods of this priority, or why it stays; only Jobs that matter are read."""
    view = state.views.get(pod.node or "")
    held = holders.of(view).get(pod.uid, NOTHING) if view else NOTHING
    if view is None or not _is_all(held, pod):
        return Stays.UNKNOWN_GPUS
    if given_back(view, held) != held:
        return Stays.UNFIT_GPUS
    if reason := _why_it_stays(state, pod, priority, budgets):
        return reason
    try:
        wanted = PendingPod(without_ours(pod), state.request_of(pod.pod).request)
        seconds = cost_seconds(pod, now)
    except RequestError:
        return Stays.UNREADABLE
    if reason := _why_its_job_keeps_it(pod, jobs, now):
        return reason
    group, topology = state.indexes.groups.request_of(pod.uid), view.shape.topology_class
    gpus = held.gpus_on(topology.node) if topology else held.touched.bit_count()
    return MovablePod(wanted, view.name, held, gpus * seconds, restart_group_of(pod.pod), group)


def _is_all(held: Held, pod: GpuPod) -> bool:
    """Whether this is as much as a pod requests."""
    gib = sum(gib for _, gib, _ in held.shares)
    return bool(held) and (held.gpus.bit_count(), gib) == (pod.gpus or 0, sum(pod.shares))


def is_alone(context: PodContext) -> bool:
    """Whether a pod is in no group, or the only one of its group: others get no room."""
    return context.group is None or (context.group.size or 1) <= 1


def without_ours(pod: GpuPod) -> Pod:
    """Return a pod without the affinity by which the queue has sent it to its node: its successor has none."""
    if pod.directed_to is None:
        return pod.pod
    return replace(pod.pod, spec=replace(pod.pod.spec, affinity=None))


def may_go_together(budgets: BudgetsOfPods, pods: Sequence[MovablePod]) -> bool:
    """Whether the disruption budgets allow to evict all of these."""
    counted = Counter[tuple[str, str]]()
    allowed = dict[tuple[str, str], int]()
    for pod in pods:
        for budget in budgets.of(pod.wanted.pod.metadata):
            name = budget.metadata.namespace, budget.metadata.name
            counted[name] += 1
            allowed[name] = budget.allowed
    return all(allowed[name] >= count for name, count in counted.items())


def cost_seconds(pod: GpuPod, now: Instant) -> float:
    """Return for how long each of the pod's GPUs does nothing new if it moves: the work that it loses, and the switch.

    A grace period counts beyond the usual one: most programs that need more time take all of it.
    """
    annotations = pod.pod.metadata.annotations or {}
    age = now.age_seconds(pod.pod.status.start_time or pod.pod.metadata.creation_timestamp)
    lost = [age]
    if keys.RESTART_COST in annotations:
        lost.append(duration(keys.RESTART_COST, annotations[keys.RESTART_COST]))
    if keys.CHECKPOINT_INTERVAL in annotations:
        lost.append(duration(keys.CHECKPOINT_INTERVAL, annotations[keys.CHECKPOINT_INTERVAL]) / 2)
    return max(0.0, min(lost)) + SWITCH_SECONDS + max(0.0, _grace_seconds(pod) - GRACE_SECONDS)


def _grace_seconds(pod: GpuPod) -> float:
    seconds = pod.pod.spec.termination_grace_period_seconds
    return GRACE_SECONDS if seconds is None else float(seconds)


def _why_it_stays(state: ClusterState, pod: GpuPod, priority: int, budgets: BudgetsOfPods) -> Stays | None:
    metadata = pod.pod.metadata
    owner, annotations = metadata.controller, metadata.annotations or {}
    if priority_of(pod.pod) > priority:
        return Stays.HIGHER_PRIORITY
    if owner is None or owner.kind in _OF_ONE_NODE:
        return Stays.NO_CONTROLLER
    if reason := _why_its_owner_keeps_it(state, pod, owner.kind):
        return reason
    if any(annotations.get(key) == word for key, word in _FORBIDS.items()):
        return Stays.FORBIDDEN
    if not is_plain(without_ours(pod)):
        return Stays.CONSTRAINTS
    if pod.directed_to is None and state.indexes.schedulers.another(pod.pod):
        return Stays.ANOTHER_SCHEDULER
    protecting = budgets.of(metadata)
    if len(protecting) > 1:
        return Stays.BUDGETS
    return Stays.BUDGET if any(budget.allowed < 1 for budget in protecting) else None


def _why_its_owner_keeps_it(state: ClusterState, pod: GpuPod, kind: str) -> Stays | None:
    """Return why a pod of an owner of this kind stays, as far as labels, groups and the kind say it."""
    if restart_group := restart_group_of(pod.pod):
        return _why_they_stay(state, pod, kind, restart_group)
    if kind in _AS_A_WHOLE or is_started_with_others(pod.pod):
        return Stays.WHOLE
    if kind not in (*_ONE_BY_ONE, *state.movable.owner_kinds):
        return Stays.UNKNOWN_OWNER
    return Stays.GROUP if state.indexes.groups.has_peers(pod.uid) else None


def _why_they_stay(state: ClusterState, pod: GpuPod, kind: str, restart_group: str) -> Stays | None:
    """Return the same of a pod that restarts with others.

    The queue leaves no group in two domains of a level that the group requires, not even while it moves.
    """
    groups = state.indexes.groups
    if kind in _AS_A_WHOLE and pod.pod.spec.restart_policy == "Never":
        return Stays.NEVER
    group = groups.request_of(pod.uid)
    if (group is not None and group.required) or groups.count_peers(pod.uid) > MOST_PEERS:
        return Stays.GROUP
    strangers = (peer for peer in groups.peers(pod.uid) or () if restart_group_of(peer.pod) != restart_group)
    return Stays.GROUP if any(strangers) else None


def _why_its_job_keeps_it(pod: GpuPod, jobs: Jobs, now: Instant) -> Stays | None:
    owner = pod.pod.metadata.controller
    if owner is None or owner.kind != "Job":
        return None
    verdict = jobs.verdict(JobName(pod.key[0], owner.name, owner.uid), now.monotonic)
    if verdict is JobVerdict.OF_JOB_SET and restart_group_of(pod.pod):
        return None
    return _OF_JOBS.get(verdict)
