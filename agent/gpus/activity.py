"""What GPUs do at one moment: how busy, how hot, how fast, and how much goes over their links.

Nothing of it says whether a GPU is well, and nothing is published on the Node. It is for whoever watches.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ClockReason(StrEnum):
    """Why a GPU's clocks are not at their highest, in NVML's words for its clock event reasons."""

    IDLE = "idle"
    APPLICATION_CLOCKS = "application_clocks"
    """Somebody has set them lower."""
    SOFTWARE_POWER_CAP = "software_power_cap"
    HARDWARE_SLOWDOWN = "hardware_slowdown"
    """Heat or power, halving the clocks or more."""
    SYNC_BOOST = "sync_boost"
    SOFTWARE_THERMAL = "software_thermal"
    HARDWARE_THERMAL = "hardware_thermal"
    POWER_BRAKE = "power_brake"
    """The power supply asks for it."""
    DISPLAY_CLOCKS = "display_clocks"


@dataclass(frozen=True, slots=True)
class Activity:
    """One GPU; `None` where NVML does not say."""

    uuid: str
    utilization_percent: int | None = None
    """Of the last moment, a sixth of a second to a second: the share in which anything computed."""
    memory_busy_percent: int | None = None
    """Of the same moment: the share in which memory was read or written."""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    """What the driver keeps; drivers before 510 count it as used, and do not say how much."""
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    energy_millijoules: int | None = None
    """Since the driver was loaded, or the GPU reset; so are the bytes below."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: frozenset[ClockReason] | None = None
    nvlink_sent_kib: int | None = None
    """Over all its NVLinks, without what the protocol adds."""
    nvlink_received_kib: int | None = None
    pcie_sent_bytes: int | None = None
    pcie_received_bytes: int | None = None


class ActivityPort(Protocol):
    """Where it is read."""

    def __call__(self) -> tuple[Activity, ...]:
        """Return what each GPU does that can be asked; raises `NvmlUnavailable` when NVML as a whole does not work."""
        ...
