"""What befalls GPUs, how often, and what the driver says of it: each rate with its source.

The fleet is one of H100. Where a source counts errors and not GPUs that were sick, the text says what was made of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.health.evidence import Evidence, Lost, RecoveryAction, RecoveryRequested, RemapFailed, Throttled, Xid

HOURS_A_YEAR: Final = 365 * 24.0
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0


class Cure(StrEnum):
    """What makes the GPU well again."""

    NOTHING = "nothing"
    """It was well all along."""
    REBOOT = "reboot"
    REPLACEMENT = "replacement"


@dataclass(frozen=True, slots=True)
class IncidentKind:
    """One way in which a GPU falls sick, or only seems to."""

    name: str
    per_gpu_hour: float
    source: str
    told: tuple[Evidence, ...]
    """What the driver says when it happens, and again whenever it hits a job."""
    cure: Cure = Cure.NOTHING
    hits_after: float = math.inf
    """Mean seconds until it ends a job that was put on the sick GPU; infinite: the job is slow, or wrong, and goes on."""
    found_after: float = 0.0
    """Seconds until anybody knows of it."""
    is_lemon: bool = False
    """Comes back again and again, and every test in between finds nothing."""
    is_stuck: bool = False
    """Of a lemon: after each error it needs a reset before it works again."""
    is_of_a_link: bool = False
    """The GPU at the other end tells the same."""
    is_assumed: bool = False
    """Whether the rate is judgement, and no published figure."""

    @property
    def is_sick(self) -> bool:
        """Whether the GPU itself is unwell."""
        return self.cure is not Cure.NOTHING


_LLAMA_GPU_HOURS = 54 * 24 * 16_384
_LLAMA = "Llama 3 (arXiv 2407.21783), table 5: {} in 54 days on 16,384 H100"
_MMU = 1_737 / 2.1e6
_MEMORY = 1 / 88_768
_DELTA = "Delta (arXiv 2503.11901 v4)"
_NOT_REMAPPED = 8 / (2.1e6 * _MEMORY)
_UNCONTAINED = 0.08
_RECOVERABLE = 19.5 / (19.5 + 41.5)
_FAULTY = 148 / _LLAMA_GPU_HOURS
_BROKEN = _FAULTY * (1 - _RECOVERABLE) / 3
_LEMONS = 12 / (8_000 * HOURS_A_YEAR)

_RESET = RecoveryRequested(RecoveryAction.GPU_RESET)
_NO_REMAP = f"{_DELTA}: 8 remap failures in 2.1 M hours of H100, 92 % of memory errors without harm"
_FAULTY_SOURCE = f"{_LLAMA.format('148 faulty GPUs')}; a third cured without a new host (Crusoe, GTC 2025)"
_SHOWS = "; what it looks like is assumed, a third each"

KINDS: Final = (
    IncidentKind(
        "program reads where it must not",
        _MMU,
        f"{_DELTA}: 1,737 MMU errors in 2.1 M hours of H100, each taken for a program's",
        (Xid(31), Xid(43), Xid(45)),
    ),
    IncidentKind(
        "program's error of another kind",
        _MMU / 100,
        "assumed: a hundredth of the MMU errors, in other engines",
        (Xid(69), Xid(45)),
        is_assumed=True,
    ),
    IncidentKind(
        "memory row replaced",
        _MEMORY * (1 - _NOT_REMAPPED),
        f"{_DELTA}: a memory error each 88,768 hours of an H100, less those without a spare row",
        (Xid(94), Xid(63), Xid(45)),
    ),
    IncidentKind(
        "memory row not replaced, contained",
        _MEMORY * (_NOT_REMAPPED - _UNCONTAINED),
        _NO_REMAP,
        (Xid(64), Xid(94), RemapFailed()),
        Cure.REPLACEMENT,
        2 * _HOUR,
    ),
    IncidentKind(
        "memory row not replaced, uncontained",
        _MEMORY * _UNCONTAINED,
        _NO_REMAP,
        (Xid(64), Xid(95), RemapFailed(), _RESET),
        Cure.REPLACEMENT,
        2 * _HOUR,
    ),
    IncidentKind(
        "uncorrectable error in SRAM",
        19 / _LLAMA_GPU_HOURS,
        _LLAMA.format("19"),
        (Xid(48), _RESET),
        Cure.REBOOT,
        _MINUTE,
    ),
    IncidentKind(
        "firmware does not answer",
        17 / _LLAMA_GPU_HOURS,
        f"{_LLAMA.format('17')}; 99 % need a reboot ({_DELTA})",
        (Xid(119),),
        Cure.REBOOT,
        _MINUTE,
    ),
    IncidentKind(
        "off the bus, a reboot helps",
        _FAULTY * _RECOVERABLE,
        _FAULTY_SOURCE,
        (Xid(79), Lost()),
        Cure.REBOOT,
        _MINUTE,
    ),
    IncidentKind("broken, off the bus", _BROKEN, _FAULTY_SOURCE + _SHOWS, (Xid(79), Lost()), Cure.REPLACEMENT, _MINUTE),
    IncidentKind(
        "broken, the driver asks for a reset",
        _BROKEN,
        _FAULTY_SOURCE + _SHOWS,
        (Xid(62), _RESET),
        Cure.REPLACEMENT,
        _HOUR,
    ),
    IncidentKind(
        "broken, the driver asks for nothing",
        _BROKEN,
        _FAULTY_SOURCE + _SHOWS,
        (Xid(46),),
        Cure.REPLACEMENT,
        _HOUR,
    ),
    IncidentKind(
        "too hot, and slow",
        6 / _LLAMA_GPU_HOURS,
        _LLAMA.format("6 of thermal interface and sensor"),
        (Throttled(True),),
        Cure.REPLACEMENT,
    ),
    IncidentKind(
        "reckons wrongly, and says nothing",
        6 / _LLAMA_GPU_HOURS,
        f"{_LLAMA.format('6 silent data corruptions')}; found after two weeks (assumed)",
        (),
        Cure.REPLACEMENT,
        found_after=14 * 24 * _HOUR,
    ),
    IncidentKind(
        "link flaps, told at one end",
        3 / 2.1e6 * 0.84,
        f"{_DELTA}: no NVLink error in 2.1 M hours of H100, so at most 3 (95 %); 84 % concern one GPU (v1)",
        (Xid(74),),
        is_assumed=True,
    ),
    IncidentKind(
        "link flaps, told at both ends",
        3 / 2.1e6 * 0.16,
        f"{_DELTA}: as above; 16 % concern several GPUs (v1)",
        (Xid(74),),
        is_of_a_link=True,
        is_assumed=True,
    ),
    IncidentKind(
        "lemon that needs a reset each time",
        _LEMONS / 2,
        f"assumed: 12 a year among 1,000 nodes, half of each kind; one GPU of {_DELTA} made 99 % of 38,905 XID 95 (v1)",
        (Xid(95), _RESET),
        Cure.REPLACEMENT,
        6 * _HOUR,
        is_lemon=True,
        is_stuck=True,
        is_assumed=True,
    ),
    IncidentKind(
        "lemon that works again by itself",
        _LEMONS / 2,
        "assumed, as above",
        (Xid(74),),
        Cure.REPLACEMENT,
        6 * _HOUR,
        is_lemon=True,
        is_assumed=True,
    ),
)
"""A rate alone is what `is_assumed` is about; `hits_after` is assumed for all."""
