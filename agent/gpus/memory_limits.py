"""Limits on what the processes of one cgroup may take of a GPU's memory, as drivers from r615 hold them; the ports to NVML."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from agent.gpus.facts import Answer


@dataclass(frozen=True, slots=True)
class GpuCgroup:
    """Where a limit holds: one GPU, one cgroup."""

    gpu: str
    """UUID."""
    cgroup: str
    """The full path of its folder."""


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """What NVML says of a place."""

    hard_bytes: int | None
    """`None`: no limit."""
    used_bytes: int


class SetLimits(Protocol):
    """Where limits are set."""

    def __call__(self, wanted: Mapping[GpuCgroup, int | None]) -> Mapping[GpuCgroup, Answer[int | None]]:
        """Set each hard limit, `None` for none, and return what is read back; raises `NvmlUnavailable`."""
        ...


class ReadLimits(Protocol):
    """Where limits are read, which takes no right."""

    def __call__(self, places: Collection[GpuCgroup]) -> Mapping[GpuCgroup, Answer[CgroupLimit]]:
        """Return what stands there now; raises `NvmlUnavailable`."""
        ...
