"""What the kernel knows of the host: the PCI tree, RDMA devices and the CPU, read from sysfs and /proc/cpuinfo.

Nothing here fails: a file that is not there, or makes no sense, is a fact that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from topology.node.links import PciePath

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function and the way to it."""

    address: str
    """`00000000:07:00.0`, as NVML writes it."""
    way: tuple[str, ...]
    """From the root complex down: `pci0000:00`, then every bridge, then the function itself."""
    numa_node: int | None
    cpus: str | None
    """CPU list, `0-19,40-59`."""
    pci_class: int | None
    """24 bits: base class, subclass, interface."""


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """One RDMA device of the kernel's `infiniband` class (InfiniBand, RoCE, EFA)."""

    name: str
    pci: PciDevice


class Host:
    """The host below `sys` and `cpuinfo`; both can be moved, for tests and for containers."""

    def __init__(
        self,
        sys: Path = Path("/sys"),
        cpuinfo: Path = Path("/proc/cpuinfo"),
        boot_id: Path = Path("/proc/sys/kernel/random/boot_id"),
    ) -> None:
        self._sys = sys
        self._cpuinfo = cpuinfo
        self._boot_id = boot_id

    def boot(self) -> str:
        """Return what names this boot of the machine, or nothing where the kernel does not say."""
        return _text(self._boot_id) or ""

    def pci(self, address: str) -> PciDevice | None:
        """Return the PCI function that NVML calls `address`, or `None` when the kernel has no such function."""
        domain, _, rest = address.lower().partition(":")
        return _pci_device(self._sys / "bus/pci/devices" / f"{int(domain, 16):04x}:{rest}")

    def rdma_devices(self) -> tuple[RdmaDevice, ...]:
        """Return the RDMA devices on PCI in the order of their numbers; no virtual functions beside their physical one."""
        devices = []
        for entry in _entries(self._sys / "class/infiniband"):
            device = _pci_device(entry / "device")
            if device and not (entry / "device/physfn").exists():
                devices.append(RdmaDevice(entry.name, device))
        return tuple(sorted(devices, key=lambda device: _natural(device.name)))

    def cpu(self) -> tuple[str | None, str | None]:
        """Return the CPU's vendor in the words of `NodeTopology.cpu_vendor`, and `family/model` or what stands for it."""
        said = _first_block(self._cpuinfo)
        if power := re.match(r"POWER\d+", said.get("cpu", "")):
            return power[0].lower(), power[0]
        if "CPU implementer" in said:
            return "arm", f"{said['CPU implementer']}/{said.get('CPU part', '')}"
        vendor = said.get("vendor_id")
        model = f"{said['cpu family']}/{said['model']}" if {"cpu family", "model"} <= said.keys() else None
        return (_VENDORS.get(vendor, vendor.lower()) if vendor else None), model


_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "amd", "CentaurHauls": "zhaoxin"}


def path_between(first: PciDevice, second: PciDevice) -> PciePath | None:
    """Return how two PCI functions are joined, or `None` when only their unknown NUMA nodes could tell.

    The labels are `nvidia-smi`'s. PIX is a single switch, with its upstream port in common and each GPU behind its own
    downstream port. PXB is several switches. PHB is a root complex in common, NODE a NUMA node in common, and SYS the
    rest.
    """
    if first.way[0] != second.way[0]:
        if first.numa_node is None or second.numa_node is None:
            return None
        return PciePath.NODE if first.numa_node == second.numa_node else PciePath.SYS
    shared = len(_common(first.way, second.way))
    if shared == 1:
        return PciePath.PHB
    return PciePath.PIX if max(len(first.way), len(second.way)) - shared <= 2 else PciePath.PXB


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    common = []
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        common.append(one)
    return common


def _pci_device(link: Path) -> PciDevice | None:
    way = _way(link.resolve())
    match = _ADDRESS.fullmatch(way[-1]) if way else None
    if not match:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    node = _number(link / "numa_node")
    return PciDevice(
        address=f"{domain:08X}:{bus:02X}:{device:02X}.{function}",
        way=way,
        numa_node=node if node is not None and node >= 0 else None,
        cpus=_text(link / "local_cpulist"),
        pci_class=_number(link / "class"),
    )


def _way(path: Path) -> tuple[str, ...]:
    """Return the part of a device's real path that begins at its root complex; empty when it hangs below none."""
    for start, part in enumerate(path.parts):
        if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part):
            return path.parts[start:]
    return ()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _number(file: Path) -> int | None:
    try:
        return int(_text(file) or "", 0)
    except ValueError:
        return None


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    return tuple((word, int(digits or -1)) for word, digits in re.findall(r"(\D*)(\d*)", name))


def _first_block(cpuinfo: Path) -> Mapping[str, str]:
    """Read what is said of the first CPU, and no further: the kernel asks every CPU when it is read to the end."""
    try:
        with cpuinfo.open(errors="replace") as lines:
            pairs = [line.partition(":") for line in takewhile(str.strip, lines)]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in pairs}
