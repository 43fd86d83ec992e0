"""What is remembered of one GPU, and what follows from it at a given time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.health.concerns import HeldConcern, remembered, standing, when_concerns_change
from agent.health.evidence import RecoveryAction
from agent.health.policy import HealthPolicy
from agent.health.throttling import Spell, throttled_seconds, when_throttling_changes


class State(StrEnum):
    """Whether new pods may have the GPU; pods that run on it stay in every state."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """It takes pods, the last among its equals."""
    QUARANTINED = "quarantined"
    PROBATION = "probation"
    """It was closed, and has been well since; as `SUSPECT`."""
    FAILED = "failed"
    """Only a person or a repair reopens it."""

    @property
    def takes_pods(self) -> bool:
        """Whether new pods may have it."""
        return self not in {State.QUARANTINED, State.FAILED}


class Way(StrEnum):
    """What has to happen before a closed GPU opens, beside its hold; whatever the driver asks for comes first."""

    HOLD = "hold"
    """Nothing more."""
    LOOK = "look"
    """The driver says that it needs nothing; where it never says, a reset."""
    RESET = "reset"


class Repair(StrEnum):
    """What ends a failure, beside a person's word."""

    RESET = "reset"
    BOOT = "boot"
    RETURN = "return"
    """Of a GPU that was missing."""
    NONE = "none"
    """The GPU itself remembers it: another one has to come."""


@dataclass(frozen=True, slots=True)
class GpuIncident:
    """Errors that came together; times in seconds since the epoch, as everywhere here."""

    began: float
    last: float
    reason: str
    counts: bool = True
    """`False` where the cause was not this GPU: an echo of a sibling's, or something common to many."""


@dataclass(frozen=True, slots=True)
class Closure:
    """Why the GPU was closed, and what opens it."""

    reason: str
    since: float
    hold_until: float
    way: Way
    reset_at: float | None = None
    """When a reset was proven."""
    clear_at: float = 0.0
    """When the last hindrance went: the GPU was back, or the driver asked for nothing."""


@dataclass(frozen=True, slots=True)
class GpuFailure:
    """Why a person is needed."""

    reason: str
    since: float
    repair: Repair
    by_count: bool = False
    """Whether it follows from how often something happened, and not from what did."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from the record."""

    state: State
    reason: str = ""
    """Empty for a healthy GPU."""
    next: str = ""
    """What happens next if nobody does anything."""
    until: float | None = None
    """When that is, where time alone brings it."""
    remedy: str = ""
    """What a person can do; empty: nothing."""
    sick_since: float | None = None
    """Since when it is unfit through itself; a GPU that a person has taken out is not."""

    @property
    def told(self) -> str:
        """What people read beside the GPU."""
        return f"{_TOLD[self.state]}{self.reason}"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a GPU that takes pods is the last among its equals to get one."""

    reason: str
    next: str
    """What ends it if nobody does anything."""
    until: float | None
    """When that is, where time alone brings it."""


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """All that is kept of one GPU, bounded: nothing older than a week, and little of what is younger."""

    incidents: tuple[GpuIncident, ...] = ()
    applications: tuple[GpuIncident, ...] = ()
    """Programs that went wrong on it."""
    closure: Closure | None = None
    closed_before: Closure | None = None
    """What stood before the last closure, in case that one turns out to be another's."""
    failure: GpuFailure | None = None
    repairs: tuple[float, ...] = ()
    """When it was reset, or its machine started anew, while it was out."""
    action: RecoveryAction | None = None
    """`None` while the driver has never said."""
    is_lost: bool = False
    was_lost_at_boot: bool = False
    uncorrected: int | None = None
    energy_mark: int | None = None
    """What it had spent, in millijoules, when it began to wait for a reset; kept then only, or each look would be a write."""
    suspect_until: float = 0.0
    """For memory errors that no XID told."""
    throttled: tuple[Spell, ...] = ()
    concerns: tuple[HeldConcern, ...] = ()
    """What made it suspect, or may soon."""
    excused: tuple[str, ...] = ()
    """What NVML tells for ever, and a person has cleared."""
    cordoned: str = ""
    """Why a person has taken it out."""
    cleared_by: str = ""
    """The word that counted last."""
    told: Verdict = Verdict(State.HEALTHY)
    """What people were told last."""


def opens_at(gpu: GpuRecord) -> float:
    """Return when a closed GPU takes pods again; infinite while something else has to happen first."""
    closure = gpu.closure
    if closure is None:
        return -math.inf
    asks = gpu.action is not None and (gpu.action.closes or gpu.action.is_of_the_node)
    if gpu.is_lost or asks:
        return math.inf
    needs_reset = closure.way is Way.RESET or (closure.way is Way.LOOK and gpu.action is None)
    if not needs_reset:
        return max(closure.hold_until, closure.clear_at)
    return math.inf if closure.reset_at is None else max(closure.hold_until, closure.clear_at, closure.reset_at)


def judge(gpu: GpuRecord, policy: HealthPolicy, now: float) -> Verdict:
    """Return what holds now."""
    if failure := gpu.failure:
        remedy = _REPAIRS[failure.repair]
        return Verdict(State.FAILED, failure.reason, "it stays out", remedy=remedy, sick_since=failure.since)
    opens = opens_at(gpu)
    if gpu.cordoned:
        sick_since = gpu.closure.since if gpu.closure and now < opens else None
        return Verdict(
            State.QUARANTINED,
            gpu.cordoned,
            "it stays out",
            remedy="kubectl gputopo uncordon-gpu",
            sick_since=sick_since,
        )
    if gpu.closure:
        if now < opens:
            return _quarantined(gpu, gpu.closure, opens)
        if now < (ends := opens + policy.probation):
            return Verdict(State.PROBATION, gpu.closure.reason, "it is healthy if nothing happens", until=ends)
    if reason := _suspicion(gpu, policy, now):
        return Verdict(State.SUSPECT, reason, "it is healthy when that is over", remedy=_LOOK)
    return Verdict(State.HEALTHY)


def doubt(gpu: GpuRecord, policy: HealthPolicy, now: float) -> Doubt | None:
    """Return why the GPU is the last among its equals; `None` where it is not, or takes no pods at all."""
    verdict = judge(gpu, policy, now)
    if not verdict.state.takes_pods:
        return None
    if verdict.state is not State.HEALTHY:
        return Doubt(verdict.reason, verdict.next, verdict.until)
    counting = [incident for incident in gpu.incidents if incident.counts and incident.began > now - policy.week]
    if len(counting) < policy.incidents_until_least_preferred:
        return None
    reason = f"{len(counting)} incidents in a week, the last with {counting[-1].reason}"
    until = counting[-policy.incidents_until_least_preferred].began + policy.week
    return Doubt(reason, "it counts as any other if nothing happens", until)


def next_change(gpu: GpuRecord, policy: HealthPolicy, now: float) -> float:
    """Return when time alone may change the verdict next; infinite if never."""
    opens = opens_at(gpu)
    times = [opens, opens + policy.probation, gpu.suspect_until]
    times += [incident.began + policy.day for incident in gpu.applications]
    times += when_throttling_changes(gpu.throttled, policy, now)
    times += when_concerns_change(gpu.concerns, policy)
    return min((moment for moment in times if moment > now), default=math.inf)


def forget(gpu: GpuRecord, policy: HealthPolicy, now: float) -> GpuRecord:
    """Return the record without what counts for nothing any more."""
    closure = gpu.closure if now < opens_at(gpu) + policy.probation else None
    return replace(
        gpu,
        incidents=tuple(incident for incident in gpu.incidents if incident.began > now - policy.week)[-_MOST:],
        applications=tuple(incident for incident in gpu.applications if incident.began > now - policy.day)[-_MOST:],
        repairs=tuple(at for at in gpu.repairs if at > now - policy.week)[-_MOST:],
        closure=closure,
        closed_before=gpu.closed_before if closure else None,
        throttled=tuple(
            span for span in gpu.throttled if span.until is None or span.until > now - policy.throttled_window
        ),
        concerns=remembered(gpu.concerns, policy, now),
    )


_TOLD = {
    State.HEALTHY: "",
    State.SUSPECT: "suspect: ",
    State.QUARANTINED: "",
    State.PROBATION: "on probation: ",
    State.FAILED: "failed: ",
}

_MOST = 32
"""Of each kind of incident: many more than any rule counts."""

_REPAIRS = {
    Repair.RESET: "reset it, or say that it is well: kubectl gputopo clear-gpu",
    Repair.BOOT: "repair the machine and start it anew, or say that it is well: kubectl gputopo clear-gpu",
    Repair.RETURN: "see why it is missing, or say that it is well: kubectl gputopo clear-gpu",
    Repair.NONE: "replace it, or say that it is well: kubectl gputopo clear-gpu",
}
_LOOK = "see whether programs, cooling or the GPU are at fault"


def _quarantined(gpu: GpuRecord, closure: Closure, opens: float) -> Verdict:
    reason, next_, remedy, until = closure.reason, "it opens by itself", "", None
    if gpu.is_lost:
        reason, next_, remedy = "gpu is lost", "it opens when it answers again", "drain the node and reboot it"
    elif gpu.action:
        next_, remedy = f"it opens when the driver asks no more for: {gpu.action}", "drain the node and do that"
    elif math.isinf(opens):
        reason, next_ = f"{closure.reason}, needs a reset", "it opens when a reset is proven"
        remedy = "drain the node and reboot it"
    else:
        until = opens
    return Verdict(State.QUARANTINED, reason, next_, until, remedy, closure.since)


def _suspicion(gpu: GpuRecord, policy: HealthPolicy, now: float) -> str:
    if gpu.action:
        return f"the driver asks for: {gpu.action}"
    programs = [incident for incident in gpu.applications if incident.began > now - policy.day]
    if len(programs) >= policy.applications_a_day:
        return f"{len(programs)} programs went wrong on it in a day, the last with {programs[-1].reason}"
    if now < gpu.suspect_until:
        return "memory errors that could not be corrected"
    if concerns := standing(gpu.concerns, policy, now):
        return concerns[0]
    if throttled_seconds(gpu.throttled, policy, now) >= policy.throttled:
        return "slowed down by heat or power"
    return ""
