"""The changing half of what a node says about itself: health with reasons, memory in use, MIG mode."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """How one GPU is just now; `None` is "unknown", never "none"."""

    uuid: str
    healthy: bool = True
    reasons: tuple[str, ...] = ()
    """Why it is not healthy, or what to watch on one that is: `xid 79`, `row remap pending`."""
    memory_used_gib: int | None = None
    """Rounded up to whole GiB, so that small changes write nothing."""
    mig_enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class LinkFault:
    """An NVLink that should be up and is not; links that no fault names are healthy."""

    gpu: str
    """UUID."""
    link: int
    """NVML's number of the link on that GPU."""
    reason: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of all GPUs of one node."""

    generation: int
    """Grows with every write, also when nothing else changed: so readers see that the agent lives."""
    gpus: tuple[GpuStatus, ...] = ()
    link_faults: tuple[LinkFault, ...] = ()
    reasons: tuple[str, ...] = ()
    """What is wrong with this report as a whole: `topology too large, the old one stands`."""

    @property
    def unhealthy(self) -> frozenset[str]:
        """UUIDs of the GPUs that must not be given to a new pod."""
        return frozenset(gpu.uuid for gpu in self.gpus if not gpu.healthy)
