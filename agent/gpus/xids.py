"""What the driver's critical errors (XIDs) say about a GPU: whether it is fit for new pods, and when it is again.

There are three kinds, as in NVIDIA's catalogue and the health agents of EKS and GKE: errors that leave the GPU usable; errors
that only a reset cures; and all others, which count until the GPU has had none for a while. What is really broken shows in NVML's
other answers, too, and keeps the GPU from coming back. Nothing is kept over a restart of the agent, and a GPU cannot be reset
while an agent has it open: so a reset, or a reboot, is always followed by a new start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from topology.node.status import GpuStatus, NodeStatus

OF_APPLICATIONS: Final = frozenset({13, 31, 43, 45, 68, 69, 94, 109, 137})
"""One program has gone wrong, or was ended to contain an error; others may go on, and new ones start."""
NOTICES: Final = frozenset({63, 92, 121, 154, *range(160, 166), 171, 172})
"""Something to know of: a row to be remapped, corrected errors, power smoothing. NVML's other answers tell what it means."""
NEEDS_RESET: Final = frozenset({46, 48, 62, 64, 95, 110, 119, 120, 140, 143, 155, 156, 158})
"""The GPU, or the firmware that drives it, does not work before it is reset.

Source of all three: NVIDIA, "XID Errors" and its catalogue; an XID that is in none of them, known or not, counts for a while.
"""


@dataclass(frozen=True, slots=True)
class Xid:
    """One critical error."""

    uuid: str
    number: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of which GPUs critical errors are told."""

    untold: tuple[str, ...] = ()
    """NVML's codes for why not, of the GPUs of which they are not, sorted."""


@dataclass(frozen=True, slots=True)
class _Spell:
    number: int
    """Of its first error, or the first that needs a reset: a reason that changed with each would be a write each."""
    until: float

    @property
    def needs_reset(self) -> bool:
        return self.number in NEEDS_RESET


class Xids:
    """The GPUs that are having a bad time; `clock` is monotonic, in seconds. Told on one thread, asked on another."""

    def __init__(self, clock: Callable[[], float], recovery_seconds: float) -> None:
        self._clock = clock
        self._recovery_seconds = recovery_seconds
        self._spells: dict[str, _Spell] = {}
        self.coverage: Coverage | None = None
        """`None` while nobody listens."""

    def happened(self, xid: Xid) -> bool:
        """Take in an error; returns whether it makes a GPU unhealthy that was not so before."""
        if xid.number in OF_APPLICATIONS | NOTICES:
            return False
        now, spell = self._clock(), self._spells.get(xid.uuid)
        if spell is None or now >= spell.until:
            self._spells[xid.uuid] = _Spell(xid.number, self._until(xid, now))
            return True
        is_worse = xid.number in NEEDS_RESET and not spell.needs_reset
        number = xid.number if is_worse else spell.number
        self._spells[xid.uuid] = _Spell(number, max(spell.until, self._until(xid, now)))
        return False

    def _until(self, xid: Xid, now: float) -> float:
        return math.inf if xid.number in NEEDS_RESET else now + self._recovery_seconds

    def marked(self, status: NodeStatus) -> NodeStatus:
        """Return the status with what the errors so far make of it."""
        gpus = tuple(map(self._marked, status.gpus))
        untold = self.coverage.untold if self.coverage else ()
        reasons = (f"critical errors are not told: {', '.join(untold)}",) if untold else ()
        return replace(status, gpus=gpus, reasons=(*status.reasons, *reasons))

    def _marked(self, gpu: GpuStatus) -> GpuStatus:
        spell = self._spells.get(gpu.uuid)
        if spell is None or self._clock() >= spell.until:
            return gpu
        reason = f"xid {spell.number}, needs a reset" if spell.needs_reset else f"xid {spell.number}"
        return replace(gpu, healthy=False, reasons=(reason, *gpu.reasons))
