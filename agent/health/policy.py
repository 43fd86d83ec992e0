"""How long a GPU stays out, and when a person has to look: the figures of the health machine, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """All times in seconds."""

    burst: float = 180.0
    """Errors no further apart than this are one incident: NVSentinel's burst."""
    hold: float = 300.0
    """How long the first incident of a day closes a GPU; each further one twice as long."""
    longest_hold: float = _HOUR
    probation: float = _HOUR
    """Without an incident, until a GPU that was closed counts as healthy."""
    day: float = _DAY
    week: float = 7 * _DAY
    incidents_a_day: int = 3
    """So many and a person, or a repair, has to come. NVSentinel: 5 fatal errors in 24 h."""
    incidents_a_week: int = 5
    incidents_until_least_preferred: int = 2
    """So many in a week, and a GPU that is well all the same comes last among its equals. One is chance, where the published
    times between a GPU's errors are months; two are not, and a person is called only for more."""
    repairs_a_week: int = 5
    """After so many, a GPU that is sick again is one that repairs do not cure. NVSentinel: 5 in 7 d."""
    applications_a_day: int = 2
    """So many programs that went wrong make a GPU suspect: NVSentinel's rule for 13 and 31."""
    common_cause: float = 5 * _MINUTE
    """Half of a node's GPUs within this time have one cause, which is none of them."""
    throttled: float = 6 * _MINUTE
    """So long of `throttled_window`, and a GPU is suspect."""
    throttled_window: float = 10 * _MINUTE
    corrected_a_second: float = 1000.0
    """With 4,600 to 17,600 corrected memory errors a second the driver's calls took 45 s and more: NVSentinel issue 1748."""
    link_errors_a_second: float = 100.0
    """NVLink transfers with a wrong checksum: DCGM's limit."""
    replays_a_minute: float = 8.0
    """PCIe transfers made again: DCGM's limit."""
    replays_for: float = 10 * _MINUTE
    """So long without a break: a slot that was touched settles."""
    concern_over: float = 10 * _MINUTE
    """So long without it, and what made a GPU suspect is over."""
    rate_window: float = 20.0
    """How far apart two readings of a counter have to be, at least, to say how fast it rises."""
    link_up: float = 5 * _MINUTE
    """How long a link has to be up again before rings use it."""
