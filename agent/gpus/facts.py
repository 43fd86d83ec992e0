"""What NVML says of one machine at one moment, and the ways in which it may not say.

Any call can fail at any time. An answer is a value, so a failure is one too and never ends a discovery. "Not supported",
"lost" and "not known just now" stay apart, because they mean different things to readers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Generic, Protocol, TypeAlias, TypeVar

from agent.health.evidence import RecoveryAction
from topology.node.links import PciePath

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Gap(StrEnum):
    """Why there is no value."""

    UNSUPPORTED = "unsupported"
    """This GPU, driver or platform does not have it; asking again is of no use."""
    LOST = "lost"
    """The GPU fell off the bus or waits for a reset."""
    FAILED = "failed"
    """Anything else: not known now, perhaps next time."""


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """What NVML said."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Missing:
    """That NVML did not say, and why."""

    gap: Gap
    code: str
    """NVML's error without its `NVML_ERROR_`: `GPU_IS_LOST`."""


Answer: TypeAlias = Known[T] | Missing


def value_of(answer: Answer[T]) -> T | None:
    """Return the value, or `None` when there is none.

    >>> value_of(Known(3)), value_of(Missing(Gap.LOST, "GPU_IS_LOST"))
    (3, None)
    """
    return answer.value if isinstance(answer, Known) else None


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """A GPU's memory; what the driver keeps for itself may count as used on old drivers."""

    total_bytes: int
    used_bytes: int
    reserved_bytes: int | None = None
    """What the driver keeps for itself, not counted as used then; `None` where it does not tell."""


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """What became of memory rows with errors (Ampere and later)."""

    pending: bool
    """A row waits for the next reset of the GPU."""
    failed: bool
    """No spare row was left: the GPU must be replaced."""
    after_corrected: int = 0
    """Rows replaced because of errors that were corrected."""
    after_uncorrected: int = 0


class FarEnd(StrEnum):
    """What kind of device an NVLink leads to."""

    GPU = "gpu"
    BRIDGE = "npu bridge"
    """The CPU of a POWER machine."""
    SWITCH = "nvswitch"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink of one GPU, as that GPU sees it."""

    number: int
    active: Answer[bool]
    """Up, or asleep until there is traffic."""
    far_end: Answer[FarEnd]
    remote_pci: str | None
    """The far end's address; `None` when it is empty, unreadable or NVML's sign for "not on PCI", as NVSwitches often are."""


class FabricState(StrEnum):
    """How far a GPU's registration with the NVLink fabric has come."""

    NONE = "none"
    """The platform has no fabric to register with."""
    NOT_STARTED = "not started"
    IN_PROGRESS = "in progress"
    COMPLETED = "completed"


class FabricHealth(IntEnum):
    """NVML's summary; it is told from Hopper on."""

    UNTOLD = 0
    HEALTHY = 1
    UNHEALTHY = 2
    LIMITED = 3
    """It works, with less bandwidth."""


class FabricTrouble(StrEnum):
    """What the bits beside the summary say is wrong, in the words that people read."""

    ROUTE = "route unhealthy"
    MANAGER = "manager gone"
    BANDWIDTH = "bandwidth degraded"


@dataclass(frozen=True, slots=True)
class Fabric:
    """A GPU's place in the NVLink fabric."""

    state: FabricState
    status: str = "SUCCESS"
    """NVML's code for how the registration went; says something only when it is completed."""
    cluster_uuid: str | None = None
    """`None` where the fabric does not leave the node."""
    clique_id: int = 0
    health: FabricHealth = FabricHealth.UNTOLD
    troubles: tuple[FabricTrouble, ...] = ()

    @property
    def cuts_off(self) -> bool:
        """Whether the GPU can count on no other through the fabric; alone it works."""
        return self.health is FabricHealth.UNHEALTHY or not _CUTTING.isdisjoint(self.troubles)


_CUTTING = frozenset({FabricTrouble.ROUTE, FabricTrouble.MANAGER})


class P2pStatus(StrEnum):
    """Whether two GPUs may reach each other, in the words of `nvidia-smi topo -p2p`."""

    OK = "OK"
    CHIPSET_NOT_SUPPORTED = "CNS"
    GPU_NOT_SUPPORTED = "GNS"
    TOPOLOGY_NOT_SUPPORTED = "TNS"
    DISABLED_BY_REGKEY = "DR"
    NOT_SUPPORTED = "NS"
    UNKNOWN = "U"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU."""

    pid: int
    """As the driver counts for us: in the host's PID namespace or in our own."""
    command: str = ""
    """How it was started; empty where that cannot be told, as of a process of another PID namespace."""

    instance: tuple[int, int] | None = None
    """The GPU instance and compute instance that it is in; `None`: the whole GPU, as far as is told."""
    memory_bytes: int | None = field(default=None, compare=False)
    """That it uses; `None`: not told. It makes no other process of it."""

    def is_one_of(self, programs: Collection[str]) -> bool:
        """Whether it runs one of these programs, whatever their folder.

        >>> GpuProcess(7, "/usr/bin/nvidia-cuda-mps-server -x").is_one_of(["nvidia-cuda-mps-server"])
        True
        """
        return self.command.partition(" ")[0].rpartition("/")[2] in programs


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A part of a GPU; the fields are those of `topology.node.slices.Slice`."""

    uuid: str
    profile: str
    memory_bytes: int
    start: int
    size: int
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class Watched:
    """What changes all the time, and what is remembered of it; nothing of it is published as a fact of the GPU."""

    recovery_action: Answer[RecoveryAction]
    """What the driver asks for; drivers from about 565 on say."""
    uncorrected_errors: Answer[int]
    """Of its memory, over its life."""
    throttled: Answer[bool]
    """Whether heat or its power supply slow it down."""
    energy_millijoules: Answer[int]
    """Since the driver was loaded, or the GPU reset."""
    memory_errors: Answer[Mapping[tuple[str, str], int]]
    """(`corrected` or `uncorrected`, location) → how many, over its life; the locations that NVML tells."""
    corrected_errors: Answer[int]
    """Of its memory, since the driver was loaded."""
    sram_exceeded: Answer[bool]
    """Whether uncorrected errors of its on-chip memory have passed the driver's limit; from Ampere on, and told to root only."""
    banks_without_spares: Answer[int]
    nvlink_errors: Answer[Mapping[str, int]]
    """Kind → how many, over all links, since the driver was loaded; the kinds that NVML tells."""
    pcie_replays: Answer[int]
    pcie_width: Answer[int]
    """Now; an idle link may run slower, and stays as wide."""
    margin_celsius: Answer[int]
    """How much hotter it may grow before it slows down."""
    throttled_nanoseconds: Answer[Mapping[str, int]]
    """Reason → how long, since the driver was loaded."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU whose handle NVML gave out; it may be lost all the same."""

    uuid: Answer[str]
    model: Answer[str]
    pci: Answer[str]
    """`00000000:07:00.0`"""
    minor: Answer[int]
    """The number in the name of its device node."""
    memory: Answer[GpuMemory]
    compute_capability: Answer[tuple[int, int]]
    pcie_generation: Answer[int]
    """The most that GPU and slot can do; an idle link runs slower."""
    pcie_width: Answer[int]
    mig_enabled: Answer[bool]
    slices: Answer[tuple[MigDevice, ...]]
    """Its MIG devices, by their instances; none where MIG is off."""
    ecc_enabled: Answer[bool]
    numa_nodes: Answer[tuple[int, ...]]
    """The host's, ascending."""
    cpus: Answer[tuple[int, ...]]
    memory_numa_node: Answer[int]
    """The NUMA node that the GPU's memory itself is, on coherent platforms; elsewhere some answer with the host's."""
    remapped_rows: Answer[RemappedRows]
    page_retirement_pending: Answer[bool]
    processes: Answer[tuple[GpuProcess, ...]]
    """That compute on it; NVML tells of those in our own PID namespace only, so of all just where we share the host's."""
    fabric: Answer[Fabric]
    nvlinks: Answer[tuple[NvLink, ...]]
    """Ascending; without those that NVML says this GPU does not have or must not see."""
    watched: Watched


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Two GPUs; `read`, `write` and `nvlink` are what peer access is asked about."""

    path: Answer[PciePath]
    read: Answer[P2pStatus]
    write: Answer[P2pStatus]
    nvlink: Answer[P2pStatus]


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """Everything, at one moment."""

    driver_version: Answer[str]
    cuda_version: Answer[str]
    gpus: tuple[Answer[GpuFacts], ...]
    """By index, every one that NVML counts; no facts where it has not even a handle."""
    pairs: Mapping[tuple[int, int], PairFacts]
    """By indexes (a, b), a < b, of GPUs with a handle."""


class NvmlPort(Protocol):
    """Where the facts come from."""

    def __call__(self) -> NvmlFacts:
        """Return the facts of now; raises `NvmlUnavailable` when NVML as a whole does not work."""
        ...


class ProcessPort(Protocol):
    """Where it is told who computes."""

    def __call__(self, gpus: Collection[str]) -> Mapping[str, Answer[tuple[GpuProcess, ...]]]:
        """Return UUID → the processes that compute on that GPU now; raises `NvmlUnavailable` like the other port."""
        ...
