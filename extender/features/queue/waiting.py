"""Reads which pods wait in the queue, and which of them can be planned: single pods, and gangs whose members are all there.

No I/O and no clock. Where a pod cannot be planned, the reason is said once, in words for people.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from extender.cluster.candidates.groups import key_of
from extender.cluster.objects.constraints import is_plain
from extender.cluster.objects.gpu_pods import GpuPod, expected_seconds_of, owner_of, priority_of
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.planning.planner import QueuePlan, Wait
from extender.planning.units import PendingPod, Unit
from extender.verbs.pod_context import PodContext
from topology.annotations import keys
from topology.effort import Search, finish
from topology.errors import RequestError
from topology.request.domains import GroupRequest, Location

UNANNOUNCED_SECONDS: Final = 3.0
"""A pod that is planned within this time of its creation gets neither events nor a condition: each is a write."""
READ_AT_ONCE: Final = 32
"""Pods, in one step: about a millisecond."""


class WaitReason(StrEnum):
    """Why a pod is not planned, in words that metrics can count."""

    OTHER_GATES = "other-gates"
    UNREADABLE = "unreadable"
    CONSTRAINTS = "constraints"
    NO_SIZE = "no-size"
    INCOMPLETE = "incomplete"
    NO_ROOM = "no-room"
    RESERVED = "reserved"
    NOT_REACHED = "not-reached"


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """Why a pod waits."""

    why: WaitReason
    words: str
    gang: Unit | None = field(default=None, compare=False)
    """Its gang, if that has no room."""

    @property
    def is_without_room(self) -> bool:
        """Whether the plan has looked for a place, and there is none now."""
        return self.why in (WaitReason.NO_ROOM, WaitReason.RESERVED)


_IN_VAIN: Final = {
    Wait.NO_ROOM: NotPlanned(WaitReason.NO_ROOM, "there is no room for it now"),
    Wait.RESERVED: NotPlanned(WaitReason.RESERVED, "there is no room for its gang now; GPUs are kept for it"),
    Wait.NOT_REACHED: NotPlanned(WaitReason.NOT_REACHED, "many pods of its namespace come before it and find no room"),
}
"""What a plan says of pods without a place."""


@dataclass(frozen=True, slots=True)
class QueuedPods:
    """All pods of the queue."""

    units: tuple[Unit, ...] = ()
    """Those that can be planned."""
    not_planned: Mapping[str, NotPlanned] = field(default_factory=dict)
    """The others, by UID."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A pod of a gang that waits for nothing but its plan."""

    pod: GpuPod
    wanted: PendingPod
    group: GroupRequest
    since: float


@dataclass(slots=True)
class ReadPods:
    """What pods ask for, as it was read before. A pod that has changed is another object, and is read again.

    Requests that are relaxed in time change nothing: their time begins when the gate is open.
    """

    _last: dict[str, tuple[GpuPod, _Member | Unit]] = field(default_factory=dict)
    _now: dict[str, tuple[GpuPod, _Member | Unit]] = field(default_factory=dict)

    def of(self, state: ClusterState, pod: GpuPod, now: Instant) -> _Member | Unit | NotPlanned:
        """Return what a pod asks for; it is read again where that depends on more than the pod."""
        before = self._last.get(pod.uid)
        is_new = before is None or before[0] is not pod
        if is_new or state.memory.setbacks.away(pod.uid, owner_of(pod.pod), now.monotonic):
            asked = _read(state, pod, now)
            if isinstance(asked, NotPlanned) or _wanted(asked).avoided:
                return asked
            before = pod, asked
        assert before is not None, "it was read before, or just now"
        self._now[pod.uid] = before
        return before[1]

    def forget_others(self) -> None:
        """Remember only what was read since the last call."""
        self._last, self._now = self._now, {}


def read_queue(
    state: ClusterState,
    now: Instant,
    planned: Container[str],
    pods: ReadPods | None = None,
    some: Sequence[GpuPod] | None = None,
) -> Search[QueuedPods]:
    """Read the pods behind our gate.

    Args:
        state: The cluster.
        now: This moment; units wait in its monotonic seconds.
        planned: UIDs of pods that are planned already.
        pods: What was read before.
        some: The pods to read; `None`: all.

    """
    pods = pods or ReadPods()
    units, not_planned = list[Unit](), dict[str, NotPlanned]()
    gangs = dict[str, list[_Member]]()
    for number, pod in enumerate([*state.indexes.gates.queued.values()] if some is None else some):
        if number % READ_AT_ONCE == READ_AT_ONCE - 1:
            yield
        if pod.uid in planned:
            continue
        member = pods.of(state, pod, now)
        if isinstance(member, NotPlanned):
            not_planned[pod.uid] = member
        elif isinstance(member, Unit):
            units.append(member)
        else:
            gangs.setdefault(key_of_unit(pod, member.group), []).append(member)
    if some is None:
        pods.forget_others()
    for key, members in gangs.items():
        unit = _gang(state, key, members, planned)
        if isinstance(unit, NotPlanned):
            not_planned |= {member.pod.uid: unit for member in members}
        else:
            units.append(unit)
        yield
    return QueuedPods(tuple(units), not_planned)


def read_again(state: ClusterState, unit: Unit, now: Instant, planned: Container[str]) -> Search[Unit | None]:
    """Return a unit as it is now, with pods that have come to its gang; `None` where it cannot be planned any more."""
    queued, uids = state.indexes.gates.queued, [member.pod.metadata.uid for member in unit.members]
    peers = (peer.uid for peer in state.indexes.groups.beside(uids[0]))
    pods = [pod for uid in dict.fromkeys((*uids, *peers)) if (pod := queued.get(uid))]
    queue = yield from read_queue(state, now, planned, some=pods)
    return next((newer for newer in queue.units if newer.key == unit.key), None)


def reasons_of(queue: QueuedPods, plan: QueuePlan) -> dict[str, NotPlanned]:
    """Return why each pod is not planned, by UID, in the order in which they are served."""
    units = {unit.key: unit for unit in queue.units}
    waits = dict[str, NotPlanned]()
    for key, wait in plan.waits.items():
        unit, reason = units[key], _IN_VAIN[wait]
        if unit.is_gang and reason.is_without_room:
            reason = replace(reason, gang=unit)
        for member in unit.members:
            waits[member.pod.metadata.uid] = reason
    return waits | {**queue.not_planned}


def gang_of(state: ClusterState, pod: GpuPod, now: Instant) -> Unit | None:
    """Return the gang of a pod as the queue would plan it; `None` where it is in none, or not all of it waits there."""
    units = finish(read_queue(state, now, ())).units
    gangs = (unit for unit in units if unit.is_gang)
    return next((gang for gang in gangs if any(member.pod.metadata.uid == pod.uid for member in gang.members)), None)


def has_waited(pod: Pod, now: Instant) -> bool:
    """Whether a pod has waited long enough for an event or a condition."""
    return now.age_seconds(pod.metadata.creation_timestamp) >= UNANNOUNCED_SECONDS


def key_of_unit(pod: GpuPod, group: GroupRequest | None) -> str:
    """Return the key of the unit that a pod is in: of its gang, or of itself alone."""
    return "/".join(key_of(pod.pod, group)) if group and group.is_gang else pod.uid


def _read(state: ClusterState, pod: GpuPod, now: Instant) -> _Member | Unit | NotPlanned:
    if not pod.awaits_plan:
        return NotPlanned(WaitReason.OTHER_GATES, "scheduling gates of others come first")
    try:
        context = PodContext.read(state, pod.pod, now)
    except RequestError as error:
        return NotPlanned(WaitReason.UNREADABLE, str(error))
    if not is_plain(pod.pod, with_claims=pod.claimed is not None):
        words = "the queue plans no pods with affinity, topology spread constraints, resource claims or volume claims"
        return NotPlanned(WaitReason.CONSTRAINTS, words)
    wanted = PendingPod(
        pod.pod, context.request, tuple(context.away(state)), context.fallbacks, context.accepted_devices
    )
    since = now.monotonic - now.age_seconds(pod.pod.metadata.creation_timestamp)
    if context.group is None or not context.group.is_gang:
        return Unit.alone(wanted, since=since, expected_seconds=expected_seconds_of(pod.pod))
    return _Member(pod, wanted, context.group, since)


def _wanted(asked: _Member | Unit) -> PendingPod:
    return asked.members[0] if isinstance(asked, Unit) else asked.wanted


def _gang(state: ClusterState, key: str, members: list[_Member], planned: Container[str]) -> Unit | NotPlanned:
    """Return a gang whose members are there, as many as it needs; `planned`: members with a plan are not planned again."""
    group = max((member.group for member in members), key=lambda group: group.size or 0)
    group = state.indexes.groups.with_size(key_of(members[0].pod.pod, group), group)
    if not group.size:
        return NotPlanned(WaitReason.NO_SIZE, f"nothing says how many pods its gang has: set {keys.GROUP_SIZE}")
    here = {member.pod.uid for member in members}
    others = [pod for pod in state.indexes.groups.beside(members[0].pod.uid) if pod.uid not in here]
    ended = sum(pod.pod.status.phase == "Succeeded" for pod in others)
    placed = [pod for pod in others if pod.is_alive and (not pod.is_gated or pod.uid in planned)]
    least = group.least or group.size
    needed = max(0, least - len(placed) - ended)
    if len(members) < needed:
        words = f"{needed - len(members)} of the {least} pods of its gang are missing, or wait for gates of others"
        if _is_of_stateful_set(members[0].pod):
            words += "; a StatefulSet creates them together only with podManagementPolicy: Parallel"
        return NotPlanned(WaitReason.INCOMPLETE, words)
    expected = [expected_seconds_of(member.pod.pod) for member in members]
    durations = [seconds for seconds in expected if seconds is not None]
    return Unit(
        key,
        members[0].pod.key[0],
        min(priority_of(member.pod.pod) for member in members),
        min(member.since for member in members),
        tuple(member.wanted for member in members),
        least=max(1, needed) if group.least else 0,
        group=group,
        placed=tuple(sorted(_locations(state, placed), key=str)),
        expected_seconds=max(durations) if len(durations) == len(expected) else None,
        is_begun=bool(placed) and needed > 0,
    )


def _is_of_stateful_set(pod: GpuPod) -> bool:
    owner = pod.pod.metadata.controller
    return owner is not None and owner.kind == "StatefulSet"


def _locations(state: ClusterState, placed: list[GpuPod]) -> set[Location]:
    """Return where the gang's other members are, or have been sent to."""
    nodes = {pod.node or pod.directed_to for pod in placed}
    return {state.nodes.locations[node] for node in nodes if node in state.nodes.locations}
