"""What pods use of GPUs, as the driver counts for cgroups that have a limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent.errors import NvmlUnavailable
from agent.gpus.facts import Known
from agent.gpus.memory_limits import GpuCgroup, ReadLimits
from agent.limits.cgroups import PodCgroups
from agent.limits.share import Share


@dataclass(frozen=True, slots=True)
class DriverUsage:
    """One node's; a driver before r615 tells nothing."""

    read_limits: ReadLimits
    cgroups: PodCgroups

    def __call__(self, shares: Collection[Share]) -> Mapping[tuple[str, str], int]:
        """Return (pod's UID, GPU) → bytes, as far as that is told; never raises."""
        pods = {share.uid: self.cgroups.of_pod(share.uid) for share in shares}
        places = {
            GpuCgroup(share.gpu, str(pods[share.uid])): (share.uid, share.gpu) for share in shares if pods[share.uid]
        }
        try:
            readings = self.read_limits(places) if places else {}
        except NvmlUnavailable:
            return {}
        return {
            places[place]: answer.value.used_bytes for place, answer in readings.items() if isinstance(answer, Known)
        }
