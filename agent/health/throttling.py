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
    ends = ((each.since, now if each.until is None else min(each.until, now)) for each in spells)
    return sum(max(0.0, until - max(since, begin)) for since, until in ends)


def when_throttling_changes(spells: Sequence[Spell], policy: HealthPolicy, now: float) -> Iterator[float]:
    """Yield when the limit is passed next, up or down, if nothing else is told."""
    moments = {each.since + policy.throttled_window for each in spells}
    moments |= {each.until + policy.throttled_window for each in spells if each.until is not None}
    moments |= {each.since + policy.throttled for each in spells}
    if any(each.until is None for each in spells):
        moments.add(now + policy.throttled_window)
    before, earlier = throttled_seconds(spells, policy, now) - policy.throttled, now
    for moment in sorted(each for each in moments if each > now):
        after = throttled_seconds(spells, policy, moment) - policy.throttled
        if before < 0 <= after or after < 0 <= before:
            # Between two moments it is a straight line; a millisecond on, the limit has been passed for certain.
            yield earlier + (moment - earlier) * before / (before - after) + 0.001
        before, earlier = after, moment
