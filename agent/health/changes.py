"""What each piece of evidence makes of one GPU's record; what concerns several GPUs at once is in `node`."""

from __future__ import annotations

import math
from dataclasses import replace

from agent.health.concerns import noted
from agent.health.evidence import (
    Back,
    Booted,
    Cleared,
    Cordoned,
    Evidence,
    Lost,
    RecoveryAction,
    RecoveryRequested,
    Reloaded,
    RemapFailed,
    Spent,
    SramExceeded,
    Symptom,
    Throttled,
    Uncorrected,
    Xid,
)
from agent.health.policy import HealthPolicy
from agent.health.record import Closure, GpuFailure, GpuIncident, GpuRecord, Repair, Way, opens_at
from agent.health.throttling import Spell
from agent.health.xids import XidKind, kind_of


def changed(gpu: GpuRecord, evidence: Evidence, policy: HealthPolicy, now: float) -> GpuRecord:
    """Return the record with a piece of evidence taken in."""
    match evidence:
        case Xid(number):
            return _after_xid(gpu, number, policy, now)
        case RecoveryRequested(action):
            return _after_asked(gpu, action, policy, now)
        case Lost():
            return _after_lost(gpu, policy, now)
        case Back():
            return _after_back(gpu, now)
        case RemapFailed():
            return _failed_for_ever(gpu, "row remap failed", now)
        case SramExceeded():
            return _failed_for_ever(gpu, "too many errors of its on-chip memory", now)
        case Reloaded():
            return _after_reset(_asking_nothing(gpu, now), Repair.RESET, now)
        case Booted():
            return _after_boot(gpu, now)
        case Cleared() | Cordoned():
            return _after_word(gpu, evidence, now)
        case _:
            return _after_measured(gpu, evidence, policy, now)


def _after_measured(
    gpu: GpuRecord, evidence: Uncorrected | Throttled | Spent | Symptom, policy: HealthPolicy, now: float
) -> GpuRecord:
    match evidence:
        case Uncorrected(count):
            return _after_uncorrected(gpu, count, policy, now)
        case Throttled(is_throttled):
            return _after_throttled(gpu, is_throttled, now)
        case Spent(millijoules):
            return _after_spent(gpu, millijoules, now)
        case _:
            return replace(gpu, concerns=noted(gpu.concerns, evidence, policy, now))


def failed_by_count(gpu: GpuRecord, policy: HealthPolicy, now: float) -> GpuRecord:
    """Return the record as failed where too many incidents count."""
    counting = [incident for incident in gpu.incidents if incident.counts]
    repairs = sum(repair > now - policy.week for repair in gpu.repairs)
    if repairs >= policy.repairs_a_week and counting and counting[-1].began > gpu.repairs[-1] and not gpu.failure:
        reason = f"{counting[-1].reason}, after {repairs} repairs in a week"
        return _failed(gpu, reason, Repair.NONE, now, by_count=True)
    for most, seconds, span in (
        (policy.incidents_a_day, policy.day, "day"),
        (policy.incidents_a_week, policy.week, "week"),
    ):
        number = sum(incident.began > now - seconds for incident in counting)
        if number >= most and not gpu.failure:
            return _failed(
                gpu,
                f"{number} incidents in a {span}, the last with {counting[-1].reason}",
                Repair.RESET,
                now,
                by_count=True,
            )
    return gpu


def _after_xid(gpu: GpuRecord, number: int, policy: HealthPolicy, now: float) -> GpuRecord:
    kind, reason = kind_of(number), f"xid {number}"
    asks = gpu.action is not None and gpu.action is not RecoveryAction.NONE
    match kind:
        case XidKind.NOTICE:
            return gpu
        case XidKind.BROKEN:
            return _failed(gpu, reason, Repair.BOOT, now)
        case XidKind.RESET:
            return closed(gpu, reason, Way.RESET, policy, now)
        case XidKind.LOOK:
            return closed(gpu, reason, Way.LOOK, policy, now)
        case XidKind.LINK if gpu.action is RecoveryAction.NONE:
            return gpu  # its edges suffer, the GPU does not
        case XidKind.APPLICATION | XidKind.SWITCH_TIMEOUT if kind is XidKind.APPLICATION or not asks:
            return replace(gpu, applications=_joined(gpu.applications, reason, policy, now))
    return closed(gpu, reason, Way.HOLD, policy, now)


def closed(gpu: GpuRecord, reason: str, way: Way, policy: HealthPolicy, now: float) -> GpuRecord:
    """Return the record with one more reason to be closed; errors that come together are one incident, and the worst stays."""
    incidents = _joined(gpu.incidents, reason, policy, now)
    number = sum(incident.counts and incident.began > now - policy.day for incident in incidents)
    hold = min(policy.hold * 2 ** max(0, number - 1), policy.longest_hold)
    before = gpu.closure if gpu.closure and now < opens_at(gpu) else None
    if before is None:
        closure = Closure(reason, now, now + hold, way)
    else:
        worse = _RANK[way] > _RANK[before.way]
        closure = replace(
            before,
            reason=reason if worse else before.reason,
            way=way if worse else before.way,
            hold_until=max(before.hold_until, now + hold),
            reset_at=None,
        )
    return replace(gpu, incidents=incidents, closure=closure, closed_before=gpu.closure)


_RANK = {Way.HOLD: 0, Way.LOOK: 1, Way.RESET: 2}


def _joined(
    incidents: tuple[GpuIncident, ...], reason: str, policy: HealthPolicy, now: float
) -> tuple[GpuIncident, ...]:
    if incidents and now - incidents[-1].last <= policy.burst:
        return (*incidents[:-1], replace(incidents[-1], last=now))
    return (*incidents, GpuIncident(now, now, reason))


def _failed(gpu: GpuRecord, reason: str, repair: Repair, now: float, *, by_count: bool = False) -> GpuRecord:
    if gpu.failure and _ENDS[gpu.failure.repair] >= _ENDS[repair]:
        return gpu
    return replace(gpu, failure=GpuFailure(reason, now, repair, by_count))


def _failed_for_ever(gpu: GpuRecord, reason: str, now: float) -> GpuRecord:
    """Return the record of a GPU that remembers its failure and tells it at each look; a person's word counts once."""
    return gpu if reason in gpu.excused else _failed(gpu, reason, Repair.NONE, now)


_ENDS = {Repair.RESET: 0, Repair.RETURN: 1, Repair.BOOT: 2, Repair.NONE: 3}
"""Which failure is the graver one."""


def _after_asked(gpu: GpuRecord, action: RecoveryAction | None, policy: HealthPolicy, now: float) -> GpuRecord:
    before = gpu.action
    if action is before:
        return gpu
    requested = replace(gpu, action=action)
    if action is RecoveryAction.NONE:
        was_reset = before is not None
        cleared = replace(requested, closure=gpu.closure and replace(gpu.closure, clear_at=now))
        return _after_reset(cleared, Repair.RESET, now) if was_reset else cleared
    if action is None:
        return requested
    own = gpu.is_lost or any(incident.last > now - policy.day for incident in gpu.incidents)
    if action.closes or (action.is_of_the_node and own):
        return closed(requested, f"the driver asks for: {action}", Way.HOLD, policy, now)
    return requested


def _after_lost(gpu: GpuRecord, policy: HealthPolicy, now: float) -> GpuRecord:
    if gpu.was_lost_at_boot:
        return _failed(replace(gpu, is_lost=True), "lost, and still so after a reboot", Repair.RETURN, now)
    if gpu.is_lost:
        return gpu
    return replace(closed(gpu, "gpu was lost", Way.HOLD, policy, now), is_lost=True)


def _after_back(gpu: GpuRecord, now: float) -> GpuRecord:
    if not gpu.is_lost:
        return gpu
    back = replace(gpu, is_lost=False, was_lost_at_boot=False)
    if back.failure and back.failure.repair is Repair.RETURN:
        back = replace(back, failure=None)
    return replace(back, closure=gpu.closure and replace(gpu.closure, clear_at=now))


def _after_uncorrected(gpu: GpuRecord, count: int, policy: HealthPolicy, now: float) -> GpuRecord:
    rose = gpu.uncorrected is not None and count > gpu.uncorrected
    is_recent = any(incident.last > now - policy.burst for incident in (*gpu.incidents, *gpu.applications))
    until = now + policy.day if rose and not is_recent else gpu.suspect_until
    return replace(gpu, uncorrected=count, suspect_until=until)


def _after_throttled(gpu: GpuRecord, is_throttled: bool, now: float) -> GpuRecord:
    last = gpu.throttled[-1] if gpu.throttled else None
    lasts = last is not None and last.until is None
    if is_throttled and not lasts:
        return replace(gpu, throttled=(*gpu.throttled, Spell(now)))
    if last and lasts and not is_throttled:
        return replace(gpu, throttled=(*gpu.throttled[:-1], replace(last, until=now)))
    return gpu


def _after_spent(gpu: GpuRecord, millijoules: int, now: float) -> GpuRecord:
    waits = gpu.failure is not None or (gpu.closure is not None and gpu.closure.way is not Way.HOLD)
    if not waits:
        return gpu if gpu.energy_mark is None else replace(gpu, energy_mark=None)
    if gpu.energy_mark is None:
        return replace(gpu, energy_mark=millijoules)
    if millijoules >= gpu.energy_mark:
        return gpu
    return replace(_after_reset(_asking_nothing(gpu, now), Repair.RESET, now), energy_mark=None)


def _asking_nothing(gpu: GpuRecord, now: float) -> GpuRecord:
    """Return the record of a GPU whose driver was loaded anew: it asks for nothing until it says otherwise."""
    if not gpu.action:  # it never says, or asked for nothing
        return gpu
    return replace(gpu, action=RecoveryAction.NONE, closure=gpu.closure and replace(gpu.closure, clear_at=now))


def _after_reset(gpu: GpuRecord, repair: Repair, now: float) -> GpuRecord:
    since = gpu.failure.since if gpu.failure else gpu.closure.since if gpu.closure else -math.inf
    if since > max(gpu.repairs, default=-math.inf):  # a GPU that was well was not repaired
        gpu = replace(gpu, repairs=(*gpu.repairs, now))
    closure = gpu.closure and replace(gpu.closure, reset_at=now)
    if not gpu.failure or gpu.failure.repair not in {Repair.RESET, repair}:
        return replace(gpu, closure=closure)
    repaired = Closure(gpu.failure.reason, now, now, Way.HOLD)
    return replace(gpu, failure=None, closure=replace(closure, clear_at=now) if closure else repaired)


def _after_boot(gpu: GpuRecord, now: float) -> GpuRecord:
    """Return the record after a boot, which takes minutes, and so is a hold by itself."""
    fresh = _after_reset(_asking_nothing(gpu, now), Repair.BOOT, now)
    closure = fresh.closure and replace(fresh.closure, hold_until=min(fresh.closure.hold_until, now))
    return replace(fresh, closure=closure, was_lost_at_boot=gpu.is_lost)


def _after_word(gpu: GpuRecord, word: Cleared | Cordoned, now: float) -> GpuRecord:
    if isinstance(word, Cleared):
        return _cleared(gpu, word.word, now)
    return replace(gpu, cordoned=word.reason)


def _cleared(gpu: GpuRecord, word: str, now: float) -> GpuRecord:
    """Return the record that a person has cleared; a GPU that is not there stays closed until it is."""
    if word and word == gpu.cleared_by:
        return gpu
    failure = gpu.failure
    lasts = failure is not None and failure.repair is Repair.NONE and not failure.by_count
    return GpuRecord(
        excused=(*gpu.excused, failure.reason) if failure and lasts else gpu.excused,
        action=gpu.action,
        is_lost=gpu.is_lost,
        uncorrected=gpu.uncorrected,
        closure=Closure("gpu was lost", now, now, Way.HOLD) if gpu.is_lost else None,
        cordoned=gpu.cordoned,
        cleared_by=word,
        told=gpu.told,
    )
