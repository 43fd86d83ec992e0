"""Move remembered times with a step of the wall clock, so that no hold ends early or late.

A clock steps when NTP sets it, when its battery is dead, or when a virtual machine goes on after a pause.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from agent.health.concerns import HeldConcern
from agent.health.policy import HealthPolicy
from agent.health.record import Closure, GpuIncident, GpuRecord
from agent.health.throttling import Spell

Span = TypeVar("Span", Spell, HeldConcern)


def moved(gpu: GpuRecord, seconds: float) -> GpuRecord:
    """Return the record with all its times moved by so much."""
    return replace(
        gpu,
        incidents=_incidents_moved(gpu.incidents, seconds),
        applications=_incidents_moved(gpu.applications, seconds),
        closure=_closure_moved(gpu.closure, seconds),
        closed_before=_closure_moved(gpu.closed_before, seconds),
        failure=gpu.failure and replace(gpu.failure, since=gpu.failure.since + seconds),
        repairs=tuple(at + seconds for at in gpu.repairs),
        suspect_until=_set_moved(gpu.suspect_until, seconds),
        throttled=_spans_moved(gpu.throttled, seconds),
        concerns=_spans_moved(gpu.concerns, seconds),
        told=replace(gpu.told, until=_moved(gpu.told.until, seconds), sick_since=_moved(gpu.told.sick_since, seconds)),
    )


def last_event(gpu: GpuRecord, policy: HealthPolicy) -> float:
    """Return when the last thing happened that the record holds; minus infinity if nothing has."""
    return max(_events(gpu, policy), default=-math.inf)


def _events(gpu: GpuRecord, policy: HealthPolicy) -> Iterator[float]:
    yield from (incident.last for incident in (*gpu.incidents, *gpu.applications))
    for closure in (gpu.closure, gpu.closed_before):
        if closure:
            yield from (closure.since, closure.clear_at, closure.reset_at or -math.inf)
    if gpu.failure:
        yield gpu.failure.since
    yield from gpu.repairs
    if gpu.suspect_until:
        yield gpu.suspect_until - policy.day
    yield from (span.since if span.until is None else span.until for span in gpu.throttled)
    yield from (span.since if span.until is None else span.until for span in gpu.concerns)


def _moved(time: float | None, seconds: float) -> float | None:
    return None if time is None else time + seconds


def _set_moved(time: float, seconds: float) -> float:
    """Move a time for which zero stands for none."""
    return time + seconds if time else 0.0


def _incidents_moved(incidents: tuple[GpuIncident, ...], seconds: float) -> tuple[GpuIncident, ...]:
    return tuple(
        replace(incident, began=incident.began + seconds, last=incident.last + seconds) for incident in incidents
    )


def _closure_moved(closure: Closure | None, seconds: float) -> Closure | None:
    return closure and replace(
        closure,
        since=closure.since + seconds,
        hold_until=closure.hold_until + seconds,
        reset_at=_moved(closure.reset_at, seconds),
        clear_at=_set_moved(closure.clear_at, seconds),
    )


def _spans_moved(spans: tuple[Span, ...], seconds: float) -> tuple[Span, ...]:
    return tuple(replace(span, since=span.since + seconds, until=_moved(span.until, seconds)) for span in spans)
