"""What the driver's critical errors (XIDs) say about a GPU: whether it is fit for new pods, and when it is again.

A GPU with an XID that is not of an application's making takes no new pods until it has had none for a while. That is the whole
of it: what is really broken shows in NVML's other answers, too, and keeps the GPU from coming back. Nothing is kept over a
restart of the agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from topology.node.status import GpuStatus, NodeStatus

OF_APPLICATIONS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Made by what runs on a GPU that is well; NVIDIA's device plugin passes over the same. Every other one counts, unknown ones too.

Source: NVIDIA, "XID Errors", which says of each whether an application can cause it.
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
    """Of its first error: a reason that changed with each would be a write each."""
    until: float


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
        if xid.number in OF_APPLICATIONS:
            return False
        now, spell = self._clock(), self._spells.get(xid.uuid)
        is_new = spell is None or now >= spell.until
        first = xid.number if spell is None or is_new else spell.number
        self._spells[xid.uuid] = _Spell(first, now + self._recovery_seconds)
        return is_new

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
        return replace(gpu, healthy=False, reasons=(f"xid {spell.number}", *gpu.reasons))
