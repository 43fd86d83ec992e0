"""What makes a GPU suspect while it lasts: errors that come too fast, and conditions that stand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.health.evidence import Corrected, LinkErrors, Margin, Replays, Symptom, WithoutSpares
from agent.health.policy import HealthPolicy


class Concern(StrEnum):
    """Each in the words that people read."""

    CORRECTED = "corrected memory errors come too fast"
    NO_SPARES = "part of its memory has no spare rows left"
    LINKS = "many transfer errors on its nvlinks"
    PCIE = "many transfers over pcie are made again"
    HOT = "as hot as it may be"


@dataclass(frozen=True, slots=True)
class HeldConcern:
    """A time in which one concern held; `until` is `None` while it does."""

    concern: Concern
    since: float
    until: float | None = None


def noted(
    concerns: tuple[HeldConcern, ...], symptom: Symptom, policy: HealthPolicy, now: float
) -> tuple[HeldConcern, ...]:
    """Return the concerns with a symptom taken in; one that ended before it counted never was."""
    concern, holds = _concern_of(symptom, policy)
    held = next((span for span in concerns if span.concern is concern), None)
    others = tuple(span for span in concerns if span is not held)
    if held is None:
        return (*others, HeldConcern(concern, now)) if holds else concerns
    if holds:
        return concerns if held.until is None else (*others, replace(held, until=None))
    if held.until is not None:
        return concerns
    counted = now >= held.since + _patience(concern, policy)
    return (*others, replace(held, until=now)) if counted else others


def standing(concerns: Sequence[HeldConcern], policy: HealthPolicy, now: float) -> list[Concern]:
    """Return what counts against the GPU now, the gravest first."""
    held = {span.concern for span in concerns if _begins(span, policy) <= now < _ends(span, policy)}
    return [concern for concern in Concern if concern in held]


def when_concerns_change(concerns: Sequence[HeldConcern], policy: HealthPolicy) -> Iterator[float]:
    """Yield when time alone changes what counts."""
    for span in concerns:
        yield _begins(span, policy)
        yield _ends(span, policy)


def remembered(concerns: Sequence[HeldConcern], policy: HealthPolicy, now: float) -> tuple[HeldConcern, ...]:
    """Return the concerns without those that are over."""
    return tuple(span for span in concerns if now < _ends(span, policy))


def _concern_of(symptom: Symptom, policy: HealthPolicy) -> tuple[Concern, bool]:
    match symptom:
        case Corrected(per_second):
            return Concern.CORRECTED, per_second > policy.corrected_a_second
        case WithoutSpares(banks):
            return Concern.NO_SPARES, banks > 0
        case LinkErrors(per_second):
            return Concern.LINKS, per_second > policy.link_errors_a_second
        case Replays(per_minute):
            return Concern.PCIE, per_minute > policy.replays_a_minute
        case Margin(celsius):
            return Concern.HOT, celsius <= 0


def _patience(concern: Concern, policy: HealthPolicy) -> float:
    return policy.replays_for if concern is Concern.PCIE else 0.0


def _begins(held: HeldConcern, policy: HealthPolicy) -> float:
    return held.since + _patience(held.concern, policy)


def _ends(held: HeldConcern, policy: HealthPolicy) -> float:
    return math.inf if held.until is None else held.until + policy.concern_over
