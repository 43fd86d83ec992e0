"""How much of the last minutes a GPU was slowed down, and when that passes the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.health.policy import HealthPolicy


@dataclass(frozen=True, slots=True)
class Spell:
    """A time of being slowed down; `until` is `None` while it lasts."""

    since: float
    until: float | None = None


def throttled_seconds(spells: Sequence[Spell], policy: HealthPolicy, now: float) -> float:
    """Return how much of the window that ends now was spent slowed down."""
    begin = now - policy.throttled_window
    ends = ((spell.since, now if spell.until is None else min(spell.until, now)) for spell in spells)
    return sum(max(0.0, until - max(since, begin)) for since, until in ends)


def when_throttling_changes(spells: Sequence[Spell], policy: HealthPolicy, now: float) -> Iterator[float]:
    """Yield when the limit is passed next, up or down, if nothing else is told."""
    moments = {spell.since + policy.throttled_window for spell in spells}
    moments |= {spell.until + policy.throttled_window for spell in spells if spell.until is not None}
    moments |= {spell.since + policy.throttled for spell in spells}
    if any(spell.until is None for spell in spells):
        moments.add(now + policy.throttled_window)
    before, earlier = throttled_seconds(spells, policy, now) - policy.throttled, now
    for moment in sorted(moment for moment in moments if moment > now):
        after = throttled_seconds(spells, policy, moment) - policy.throttled
        if before < 0 <= after or after < 0 <= before:
            # Between two moments it is a straight line; a millisecond on, the limit has been passed for certain.
            yield earlier + (moment - earlier) * before / (before - after) + 0.001
        before, earlier = after, moment
