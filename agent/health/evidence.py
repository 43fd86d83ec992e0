"""What can be told of a GPU: one value each, as NVML, the driver or a person says it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class RecoveryAction(IntEnum):
    """What the driver asks for: NVML's field 230."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7

    @property
    def closes(self) -> bool:
        """Whether the GPU itself needs it, and takes nothing new until it is done."""
        return self in {self.GPU_RESET, self.DRAIN_AND_RESET, self.BUS_RESET}

    @property
    def is_of_the_node(self) -> bool:
        """Whether it is a flag of the whole driver: a GPU that tells it need not be the sick one."""
        return self in {self.NODE_REBOOT, self.SYSTEM_REBOOT}

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Xid:
    """A critical error."""

    number: int


@dataclass(frozen=True, slots=True)
class RecoveryRequested:
    """What the driver asks for now; `None` where it does not say."""

    action: RecoveryAction | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The GPU does not answer, or is missing."""


@dataclass(frozen=True, slots=True)
class Back:
    """The GPU answers again."""


@dataclass(frozen=True, slots=True)
class Uncorrected:
    """The counter of memory errors that could not be corrected; less than before is a new driver's counter."""

    count: int


@dataclass(frozen=True, slots=True)
class RemapFailed:
    """A memory row could not be replaced. The GPU keeps that for ever."""


@dataclass(frozen=True, slots=True)
class SramExceeded:
    """So many errors of its on-chip memory could not be corrected that the driver's limit is passed; the GPU remembers it."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """How fast memory errors come that are corrected."""

    per_second: float


@dataclass(frozen=True, slots=True)
class WithoutSpares:
    """How many banks of its memory have no spare row left; the next bad row there cannot be replaced."""

    banks: int


@dataclass(frozen=True, slots=True)
class LinkErrors:
    """How fast NVLink transfers come with a wrong checksum, over all links of the GPU."""

    per_second: float


@dataclass(frozen=True, slots=True)
class Replays:
    """How often PCIe transfers are made again."""

    per_minute: float


@dataclass(frozen=True, slots=True)
class Margin:
    """How many degrees it may still grow hotter before it slows down."""

    celsius: float


Symptom = Corrected | WithoutSpares | LinkErrors | Replays | Margin
"""What makes a GPU suspect while it lasts."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """Whether heat or power slow it down."""

    now: bool


@dataclass(frozen=True, slots=True)
class Spent:
    """The energy that it has spent since the driver was loaded, or the GPU reset: less than before is a proof of either."""

    millijoules: int


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The driver was loaded anew, and has reset the GPU."""


@dataclass(frozen=True, slots=True)
class Booted:
    """The machine was started anew."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """A person says that the GPU is well; what was told before counts no more."""

    word: str = ""
    """How it was said: the same word counts once."""


@dataclass(frozen=True, slots=True)
class Cordoned:
    """A person takes the GPU out, or lets it in again."""

    reason: str
    """What people read; empty: let in."""


Evidence = (
    Xid
    | RecoveryRequested
    | Lost
    | Back
    | Uncorrected
    | RemapFailed
    | SramExceeded
    | Symptom
    | Throttled
    | Spent
    | Reloaded
    | Booted
    | Cleared
    | Cordoned
)
