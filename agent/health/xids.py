"""What the driver's critical errors (XIDs) say about a GPU.

Sources: NVIDIA, "XID Errors" and its catalogue; what NVIDIA's device plugin, NVSentinel and the health agents of EKS and GKE do
with each. An XID that is in no class, known or not, closes the GPU for a while.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class XidKind(StrEnum):
    """What an XID asks for."""

    NOTICE = "notice"
    """Nothing: it is about a pod that ended, a row to be remapped, power smoothing. NVML's other answers tell what it means."""
    APPLICATION = "application"
    """One program has gone wrong. Two of different programs point to the GPU."""
    LINK = "link"
    """An NVLink, whose ends may both be well: the driver's recovery action decides."""
    SWITCH_TIMEOUT = "switch time-out"
    """The driver's recovery action decides; without one it counts as an application's."""
    HOLD = "hold"
    """The GPU takes no new pods for a while."""
    LOOK = "look"
    """As `HOLD` where the driver says that no reset is needed; where it says nothing, only a reset reopens the GPU."""
    RESET = "reset"
    """Only a reset reopens the GPU."""
    BROKEN = "broken"
    """Mechanical: a person has to look."""


_KINDS: Final = {
    XidKind.NOTICE: frozenset(
        {14, 37, 38, 43, 44, 45, 63, 66, 67, 68, 92, 93, 106, 107, 108, 121, 137, 141, 147, 148, 152, 153, 154, 157}
        | {*range(160, 166), 171, 172, 185}
    ),
    XidKind.APPLICATION: frozenset(
        {8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 69, 70, 71, 72, 75, 76, 77, 80, *range(82, 87), 88, 89, 94}
        | {*range(96, 106), *range(126, 136), 139}
    ),
    XidKind.LINK: frozenset({144, 145, 146, 149}),
    XidKind.SWITCH_TIMEOUT: frozenset({109}),
    XidKind.LOOK: frozenset({46, 48, 62, 64, 110, 136, 140, 150, 151, 155, 156, 158, 167, 168, 169}),
    XidKind.RESET: frozenset({79, 95, 119, 120, 143}),
    XidKind.BROKEN: frozenset({142}),
}
ALL_KINDS: Final = {number: kind for kind, numbers in _KINDS.items() for number in numbers}

NVLINK_ERROR: Final = 74
"""Told at both ends of a link: where siblings tell it, too, it is the link and not the GPU."""
OF_LINKS: Final = frozenset({NVLINK_ERROR, *range(144, 152), 155})
"""One fault of the fabric is told by several GPUs, as errors of this kind or as the clean-up that follows."""


def kind_of(number: int) -> XidKind:
    """Return what an XID asks for."""
    return ALL_KINDS.get(number, XidKind.HOLD)
