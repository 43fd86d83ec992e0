"""Critical errors of the driver (XIDs), as they are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CriticalError:
    """One critical error."""

    uuid: str
    """Of the GPU; empty where NVML cannot say it any more."""
    number: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of which GPUs critical errors are told."""

    untold: tuple[str, ...] = ()
    """NVML's codes for why not, of the GPUs of which they are not, sorted."""
