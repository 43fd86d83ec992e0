"""The people who repair: what they do about each kind, and when; the same whatever the policy."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.health.year.kinds import Cure, IncidentKind

_HOUR = 3600.0
_DAY = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class Operator:
    """All delays are assumed, in seconds. They begin when anybody can know of the incident."""

    reboot: float = 4 * _HOUR
    """Until the node is drained and started anew."""
    replacement: float = 3 * _DAY
    """Until another GPU is in its place; the reboot is tried before."""
    lemon: float = 28 * _DAY
    """Until people are sure that a GPU is a lemon, and replace it."""
    round: float = 7 * _DAY
    """How often somebody tests the GPUs that are out, and lets in those that pass."""

    def seconds_until_reboot(self, kind: IncidentKind) -> float:
        """Return when after the incident the node is started anew."""
        return kind.found_after + self.reboot

    def seconds_until_well(self, kind: IncidentKind) -> float:
        """Return when after the incident the GPU is well."""
        if kind.is_lemon:
            return self.lemon
        if kind.cure is Cure.REPLACEMENT:
            return kind.found_after + self.replacement
        return self.seconds_until_reboot(kind) if kind.is_sick else 0.0
