"""Facts about GPU and CPU models: what a product name says of its links when nothing better was measured.

Sources: NVIDIA's data sheets (links, PCIe generation, peer access); NCCL 2.30 `graph/topo.h` for the usable rate per NVLink and
between CPU sockets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

NVLINK_GB_PER_S: dict[int, float] = {6: 18.0, 7: 20.0, 8: 20.0, 9: 20.6, 10: 40.1}
"""Usable rate of one NVLink, one direction, by major compute capability (NCCL's SM60…SM100 constants)."""

GA102_NVLINK_GB_PER_S = 12.0
"""Compute capability 8.6 has slower links (NCCL's SM86 constant)."""

DEFAULT_NVLINK_GB_PER_S = 20.0
DEFAULT_MAX_NVLINKS = 18


@dataclass(frozen=True, slots=True)
class Architecture:
    """What all GPUs of a product family share."""

    compute_capability: tuple[int, int]
    max_nvlinks: int
    pcie_generation: int
    pcie_width: int = 16
    peer_access: bool = True
    """Whether the stock driver lets two of them read each other over PCIe."""
    bridge_gb_per_s: float | None = None
    """Usable rate of one NVLink where cards of this name were measured to fall short of their generation's."""

    @property
    def nvlink_gb_per_s(self) -> float:
        """Usable rate of one link, one direction."""
        return nvlink_gb_per_s(self.compute_capability)


def nvlink_gb_per_s(compute_capability: tuple[int, int] | None) -> float:
    """Return the usable rate of one NVLink in GB/s, one direction.

    >>> nvlink_gb_per_s((8, 6)), nvlink_gb_per_s((9, 0)), nvlink_gb_per_s(None)
    (12.0, 20.6, 20.0)
    """
    if compute_capability is None:
        return DEFAULT_NVLINK_GB_PER_S
    if compute_capability == (8, 6):
        return GA102_NVLINK_GB_PER_S
    return NVLINK_GB_PER_S.get(compute_capability[0], DEFAULT_NVLINK_GB_PER_S)


_KEPLER = Architecture((3, 7), 0, 3)
_MAXWELL = Architecture((5, 2), 0, 3)
_PASCAL = Architecture((6, 0), 4, 3)
_PASCAL_GEFORCE = Architecture((6, 1), 0, 3)
_VOLTA = Architecture((7, 0), 6, 3)
_TURING = Architecture((7, 5), 2, 3)
_TURING_ONE_LINK = Architecture((7, 5), 1, 3)
_TURING_NO_LINK = Architecture((7, 5), 0, 3)
_AMPERE = Architecture((8, 0), 12, 4)
_AMPERE_A800 = Architecture((8, 0), 8, 4)
_AMPERE_A30 = Architecture((8, 0), 4, 4)
_GA102 = Architecture((8, 6), 4, 4)
_GA102_NO_LINK = Architecture((8, 6), 0, 4)
_GEFORCE_30 = Architecture((8, 6), 4, 4, peer_access=False)
_ADA = Architecture((8, 9), 0, 4)
_ADA_NO_PEER = Architecture((8, 9), 0, 4, peer_access=False)
_HOPPER = Architecture((9, 0), 18, 5)
_HOPPER_H800 = Architecture((9, 0), 8, 5)
_HOPPER_BRIDGE = Architecture((9, 0), 12, 5)
# 115 to 116 GB/s over 12 links (NVIDIA/nccl issue 1161, one machine, cause not known); H100 NVL has no report and keeps the rule.
_H100_PCIE = Architecture((9, 0), 12, 5, bridge_gb_per_s=9.95)
_BLACKWELL = Architecture((10, 0), 18, 5)
_BLACKWELL_PRO = Architecture((12, 0), 0, 5)
_BLACKWELL_GEFORCE = Architecture((12, 0), 0, 5, peer_access=False)

_BY_NAME: tuple[tuple[str, Architecture], ...] = (
    # Turing's numbers came again with Ampere, Ada and Blackwell: 3000 to 5000 without "Quadro" are theirs.
    ("*quadro rtx 3000*", _TURING_NO_LINK),
    ("*quadro rtx 4000*", _TURING_NO_LINK),
    ("*quadro rtx 5000*", _TURING_ONE_LINK),
    ("*quadro rtx *", _TURING),
    ("*gb300*", Architecture((10, 3), 18, 5)),
    ("*b300*", Architecture((10, 3), 18, 5)),
    ("*gb200*", _BLACKWELL),
    ("*b200*", _BLACKWELL),
    ("*b100*", _BLACKWELL),
    ("*gb10", Architecture((12, 1), 0, 5)),
    ("*gh200*", _HOPPER),
    ("*h200 nvl*", _HOPPER),
    ("*h200*", _HOPPER),
    ("*h800 pcie*", _HOPPER_H800),
    ("*h800*", _HOPPER_H800),
    ("*h100 nvl*", _HOPPER_BRIDGE),
    ("*h100 pcie*", _H100_PCIE),
    ("*h100*", _HOPPER),
    ("*h20*", _HOPPER),
    ("*rtx a1*", Architecture((8, 6), 0, 4, pcie_width=8)),
    ("*a100*", _AMPERE),
    ("*a800*", _AMPERE_A800),
    ("*rtx a4*", _GA102_NO_LINK),
    ("*rtx a3*", _GA102_NO_LINK),
    ("*rtx a2*", _GA102_NO_LINK),
    ("*a30*", _AMPERE_A30),
    ("*a40*", _GA102),
    ("*a10g*", _GA102_NO_LINK),
    ("*a10*", _GA102_NO_LINK),
    ("*a16*", _GA102_NO_LINK),
    ("*rtx a6000*", _GA102),
    ("*rtx a5500*", _GA102),
    ("*rtx a5000*", _GA102),
    ("*rtx 2000 ada*", Architecture((8, 9), 0, 4, pcie_width=8)),
    ("* ada *", _ADA),
    ("*rtx 3090*", _GEFORCE_30),
    ("*rtx 30*", Architecture((8, 6), 0, 4, peer_access=False)),
    ("*l40*", _ADA),
    ("*l20", _ADA),
    ("*l4", _ADA_NO_PEER),
    ("*rtx 40*", _ADA_NO_PEER),
    ("*rtx pro *", _BLACKWELL_PRO),
    ("*rtx 5060*", Architecture((12, 0), 0, 5, pcie_width=8, peer_access=False)),
    ("*rtx 50*", _BLACKWELL_GEFORCE),
    ("*v100*", _VOLTA),
    ("*titan v*", Architecture((7, 0), 0, 3)),
    ("*titan rtx*", _TURING),
    ("*rtx 8000*", _TURING),
    ("*rtx 6000d*", _BLACKWELL_PRO),
    ("*rtx 6000*", _TURING),
    ("*rtx 2080*", Architecture((7, 5), 2, 3, peer_access=False)),
    ("*rtx 20*", Architecture((7, 5), 0, 3, peer_access=False)),
    ("*t4", _TURING_NO_LINK),
    ("*p100*", _PASCAL),
    ("*p40*", _PASCAL_GEFORCE),
    ("*p4", _PASCAL_GEFORCE),
    ("*gtx 10*", _PASCAL_GEFORCE),
    ("*m60*", _MAXWELL),
    ("*m40*", _MAXWELL),
    ("*k80*", _KEPLER),
)


@lru_cache(maxsize=256)
def architecture_of(model: str) -> Architecture | None:
    """Return what is known of a product name as NVML reports it, or `None`.

    >>> architecture_of("NVIDIA A100-SXM4-80GB").compute_capability
    (8, 0)
    >>> architecture_of("a GPU of next year") is None
    True
    """
    name = model.lower()
    return next((found for pattern, found in _BY_NAME if fnmatchcase(name, pattern)), None)


INTEL_SOCKET_GB_PER_S = ((0xCF, 40.0), (0x8F, 22.0), (0x55, 10.0), (0, 6.0))
"""Family 6 model from which on → rate: Emerald Rapids, Sapphire Rapids, Skylake, Broadwell and before."""
SOCKET_GB_PER_S = {"amd": 16.0, "power9": 32.0, "arm": 6.0, "zhaoxin": 6.0}
SOCKET_GB_PER_S_BY_PCIE = {1: 6.0, 2: 6.0, 3: 10.0, 4: 16.0, 5: 22.0, 6: 40.0}
"""Where the CPU is not known: that of the servers which brought the PCIe generation (Skylake, EPYC Rome, Sapphire Rapids, …)."""


def cpu_socket_gb_per_s(vendor: str | None, model: str | None, pcie_generation: int) -> float:
    """Return NCCL's rate between two sockets, one direction; `model` is `family/model`.

    >>> cpu_socket_gb_per_s("intel", "6/143", 5), cpu_socket_gb_per_s("intel", "6/79", 3), cpu_socket_gb_per_s(None, None, 4)
    (22.0, 6.0, 16.0)
    """
    known = re.fullmatch(r"6/(\d{1,4})", model or "", re.ASCII)
    if vendor == "intel" and known:
        return next(rate for first, rate in INTEL_SOCKET_GB_PER_S if int(known[1]) >= first)
    return SOCKET_GB_PER_S.get(vendor or "", SOCKET_GB_PER_S_BY_PCIE[min(max(pcie_generation, 1), 6)])
