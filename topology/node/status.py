"""The changing half of what a node says about itself: health with reasons, memory in use, MIG mode."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from topology.node.alignment import TopologyManager
from topology.node.offers import ResourceOffer
from topology.node.sharing import Sharing


@dataclass(frozen=True, slots=True)
class Outlook:
    """What will become of a GPU that is not healthy."""

    next: str
    """What happens if nobody does anything: `it opens by itself`."""
    until: int | None = None
    """When, in seconds since the epoch, where time alone brings it."""
    remedy: str = ""
    """What a person can do; empty: nothing."""


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
    sick_since: int | None = None
    """Since when it is unfit through itself, in seconds since the epoch. A GPU that a person has taken out, that its
    device plugin withholds, or that cannot be asked is not healthy, but not sick."""
    outlook: Outlook | None = None
    """`None` for a healthy GPU, and from agents that do not say."""
    doubtful: bool = False
    """Whether new pods get it only where no equal of it is free; never of a GPU that takes none."""
    offers: tuple[ResourceOffer, ...] | None = None
    """How somebody else's device plugin offers it to pods; empty: not at all."""
    share_gib: int | None = None
    """GiB of it that shares may take: its memory without what the driver keeps; `None`: it is never shared."""
    beyond_shares_gib: int = 0
    """Memory in use that no share explains, in coarse steps."""


@dataclass(frozen=True, slots=True)
class LinkFault:
    """An NVLink that should be up and is not; links that no fault names are healthy."""

    gpu: str
    """UUID."""
    link: int
    """NVML's number of the link on that GPU."""
    reason: str
    since: int | None = None
    """When it went down, in seconds since the epoch; `None` where nobody knows."""
    until: int | None = None
    """When it is used again if it stays up; `None` while it is down."""


class Mode(StrEnum):
    """Who hands a node's GPUs to containers."""

    OBSERVE = "observe"
    """Somebody else's device plugin; the agent tells what it did."""
    ENFORCE = "enforce"
    """The agent itself, as the ledger says."""


class MigStrategy(StrEnum):
    """Under which resources MIG slices are offered; NVIDIA's words."""

    NONE = "none"
    """Under none."""
    SINGLE = "single"
    """Under that of whole GPUs, of which the node has none then."""
    MIXED = "mixed"
    """Under one resource for each profile, beside the whole GPUs."""


@dataclass(frozen=True, slots=True)
class DevicePluginStatus:
    """How the node's GPUs get into containers, and whether that works just now."""

    mode: Mode
    ready: bool
    """In `enforce`: a pod bound now gets the planned GPUs; never bind to a node that says no.

    In `observe`: a device plugin serves the resource, and what it hands out is seen.
    """
    session: str = ""
    """Another one with each registration; containers that started under an older one are not affected."""
    reasons: tuple[str, ...] = ()
    """Why it is not ready, or what to watch though it is: `another device plugin serves nvidia.com/gpu`."""
    mig: MigStrategy = MigStrategy.NONE
    topology_manager: TopologyManager | None = None
    """The kubelet's, where it aligns what containers get and knows the GPUs' NUMA nodes; `None`: it admits any GPUs."""
    also_offered: frozenset[str] = frozenset()
    """UUIDs of GPUs that are not healthy, and that the kubelet counts as free for containers all the same."""
    sharing: Sharing | None = None
    """How pods share GPUs; `None`: they do not."""


@dataclass(frozen=True, slots=True)
class NodeGpuStatus:
    """The status of all GPUs of one node."""

    generation: int
    """Grows with every write, also when nothing else changed: so readers see that the agent lives."""
    gpus: tuple[GpuStatus, ...] = ()
    link_faults: tuple[LinkFault, ...] = ()
    reasons: tuple[str, ...] = ()
    """What is wrong with this report as a whole: `topology too large, the old one stands`."""
    device_plugin: DevicePluginStatus | None = None
    """`None` from an agent that has not looked at its kubelet."""
    agent_version: str = ""
    """Of the agent that wrote it; empty from agents that do not say."""

    @property
    def unhealthy(self) -> frozenset[str]:
        """UUIDs of the GPUs that must not be given to a new pod."""
        return frozenset(gpu.uuid for gpu in self.gpus if not gpu.healthy)

    @property
    def doubtful(self) -> frozenset[str]:
        """UUIDs of the GPUs that new pods get last among equals."""
        return frozenset(gpu.uuid for gpu in self.gpus if gpu.doubtful and gpu.healthy)


def name_of(uuid: str, index: int | None) -> str:
    """Return how people are told of a GPU: what `nvidia-smi` counts it as, and the beginning of its UUID.

    >>> name_of("GPU-1a2b3c4d-0000-0000-0000-000000000000", 3)
    'GPU 3 (GPU-1a2b3c4d)'
    """
    short = "-".join(uuid.split("-")[:2])
    return short if index is None else f"GPU {index} ({short})"
