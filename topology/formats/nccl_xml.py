"""NCCL topology XML to topology: dumps (`NCCL_TOPO_DUMP_FILE`) and the partial files that clouds ship (`NCCL_TOPO_FILE`).

Distances follow from the tree: one switch in common is `PIX`, several `PXB`, only the `cpu` element (for NCCL a NUMA node)
`PHB`, none `SYS`. Files without `gpu` elements list their GPUs as plain devices of display class; indexes then follow the bus
ids, as NVML's do. Such files have no NVLinks: NCCL asks the machine for them. A link from a GPU to itself says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from topology.formats.matrix import UNKNOWN_MODEL
from topology.formats.xml_tree import Element, read_xml
from topology.node.architectures import architecture_of
from topology.node.links import PciePath
from topology.node.model import MAX_GPUS, MAX_NICS, MAX_NVLINKS, Gpu, Link, Nic, NodeTopology

_BUS_ID = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.ASCII | re.IGNORECASE)
_GENERATIONS: Final = {
    "2.5": 1,
    "5": 2,
    "5.0": 2,
    "8": 3,
    "8.0": 3,
    "16": 4,
    "16.0": 4,
    "32": 5,
    "32.0": 5,
    "64": 6,
    "64.0": 6,
}
"""GT/s → PCIe generation."""
_VENDORS: Final = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
_NVIDIA: Final = "0x10de"
_GPU_VENDORS: Final = {"0x1002": "AMD", "0x1d94": "Hygon", "0x8086": "Intel"}


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU or a NIC, and what lies between it and the memory."""

    element: Element
    """`pci` of a GPU or a bare NIC, `net` of a NIC."""
    bus_id: str | None
    bridges: tuple[Element, ...]
    """`pci` elements above it, nearest first."""
    cpu: Element | None


def parse_nccl_xml(
    text: str, gpu_model: str | None = None, warn: Callable[[int, str], None] = lambda _line, _what: None
) -> NodeTopology:
    """Return the topology of a `system` document; raises `SourceError`. `gpu_model` is NVML's product name.

    `warn` gets the line of what is missing or left out, and a sentence about it.
    """
    system = read_xml(text)
    if system.tag == "graphs":
        raise system.refused("an NCCL graph: it holds the channels of one search, not the wiring of a machine")
    if system.tag != "system":
        raise system.refused(f"a {system.tag[:32]} document, not an NCCL topology (system)")
    cpus = [element for element in system.walk() if element.tag == "cpu"]
    _check_host(cpus)
    gpus = _gpu_devices(system)
    links = _Links(gpus)
    for element in links.to_self:
        warn(element.line, "an NVLink from a GPU to itself is left out")
    if not any(device.element.child("gpu") for device in gpus.values()) and _may_have_nvlinks(gpu_model):
        line = min(device.element.line for device in gpus.values())
        warn(line, "the file says nothing of NVLinks, so GPUs are planned without; NCCL_TOPO_DUMP_FILE writes them")
    return NodeTopology(
        gpus=tuple(_gpu(index, gpus[index], links.to_switch[index], gpu_model) for index in sorted(gpus)),
        links=tuple(
            Link(a, b, nvlinks=links.between(a, b), path=_path(gpus[a], gpus[b]))
            for a, b in combinations(sorted(gpus), 2)
        ),
        nics=tuple(_nics(system, gpus)),
        cpu_vendor=_cpu_vendor(cpus[0]) if cpus else None,
        cpu_model=_cpu_model(cpus[0]) if cpus else None,
    )


def _check_host(cpus: Sequence[Element]) -> None:
    for cpu in cpus:
        if cpu.attributes.get("host_hash") != cpus[0].attributes.get("host_hash"):
            raise cpu.refused("CPUs of more than one host: one node is one file")


def _gpu_devices(system: Element) -> dict[int, _Device]:
    """Return GPU index → device."""
    pcis = [element for element in system.walk() if element.tag == "pci"]
    for element in system.walk():
        if element.tag == "gpu" and (element.parent is None or element.parent.tag != "pci"):
            raise element.refused("a gpu element outside of a pci element")
    named = [pci for pci in pcis if pci.child("gpu")]
    for pci in named:
        _check_vendor(pci)
    bare = [pci for pci in pcis if _is_display(pci)]
    devices = [_device(pci, pci) for pci in named or bare]
    if not devices:
        for pci in pcis:
            if pci.attributes.get("vendor", "").lower() in _GPU_VENDORS and _is_accelerator(pci):
                _check_vendor(pci)
        unknown = next((pci for pci in pcis if "class" not in pci.attributes), system)
        raise unknown.refused("no GPU: neither a gpu element nor a device of class 0x0300 or 0x0302")
    if len(devices) > MAX_GPUS:
        raise system.refused(f"more than {MAX_GPUS} GPUs")
    found: dict[int, _Device] = {}
    seen: set[str | None] = set()
    for order, device in enumerate(sorted(devices, key=lambda device: device.bus_id or "")):
        gpu = device.element.child("gpu")
        index = order if gpu is None else gpu.number("dev", 0, 1023)
        if index is None:
            raise device.element.refused("a gpu element without dev")
        if index in found or device.bus_id in seen:
            raise device.element.refused("the same GPU twice")
        found[index] = device
        seen.add(device.bus_id)
    return found


def _check_vendor(pci: Element) -> None:
    """Refuse GPUs that NVIDIA did not make: RCCL and its relatives write the same elements."""
    vendor = pci.attributes.get("vendor", _NVIDIA).lower()
    gpu = pci.child("gpu")
    is_rccl = gpu is not None and ("gcn" in gpu.attributes or gpu.child("xgmi") is not None)
    if vendor != _NVIDIA or is_rccl:
        maker = _GPU_VENDORS.get(vendor, "another maker" if vendor == _NVIDIA else f"vendor {vendor[:16]}")
        raise pci.refused(f"a GPU of {maker}: only NVIDIA's are planned")


def _may_have_nvlinks(gpu_model: str | None) -> bool:
    architecture = architecture_of(gpu_model) if gpu_model else None
    return architecture is None or architecture.max_nvlinks > 0


def _is_accelerator(pci: Element) -> bool:
    return pci.attributes.get("class", "").startswith(("0x0300", "0x0302", "0x0380", "0x1200"))


def _is_display(pci: Element) -> bool:
    is_display = pci.attributes.get("class", "").startswith(("0x0300", "0x0302"))
    return is_display and pci.attributes.get("vendor", _NVIDIA).lower() == _NVIDIA


def _device(element: Element, pci: Element | None) -> _Device:
    above = list(element.ancestors())
    bridges = tuple(found for found in above if found.tag == "pci" and found is not pci)
    cpu = next((found for found in above if found.tag == "cpu"), None)
    return _Device(element, _bus_id(pci) if pci else None, bridges, cpu)


def _bus_id(pci: Element) -> str:
    """Return the address as NVML spells it: eight digits of domain, upper case."""
    said = pci.attributes.get("busid", "")
    spelled = _spelled(said)
    if spelled is None:
        raise pci.refused(f"busid {said[:32]!r} is no PCI address" if said else "a pci element without busid")
    return spelled


def _spelled(address: str) -> str | None:
    found = _BUS_ID.fullmatch(address)
    return f"{found[1]:0>8}:{found[2]}:{found[3]}.{found[4]}".upper() if found else None


def _path(one: _Device, other: _Device) -> PciePath:
    for up, bridge in enumerate(one.bridges):
        if bridge in other.bridges:
            return PciePath.PIX if up == other.bridges.index(bridge) == 0 else PciePath.PXB
    if _are_joined(one, other) or _are_joined(other, one):
        return PciePath.PXB
    return PciePath.PHB if one.cpu is not None and one.cpu is other.cpu else PciePath.SYS


def _has_place(*devices: _Device) -> bool:
    return all(device.bus_id is not None or device.cpu is not None for device in devices)


def _are_joined(one: _Device, other: _Device) -> bool:
    """Whether a `pcilink` leads from a switch above `one` to a switch above `other`."""
    targets = {
        link.attributes.get("target") for bridge in one.bridges for link in bridge.children if link.tag == "pcilink"
    }
    return not targets.isdisjoint(bridge.attributes.get("busid") for bridge in other.bridges)


class _Links:
    """NVLinks by GPU index; each end lists its own, and a pair is worth what the weaker end says."""

    def __init__(self, gpus: dict[int, _Device]) -> None:
        indexes = {device.bus_id: index for index, device in gpus.items()}
        self.to_switch = dict.fromkeys(gpus, 0)
        self.to_self: list[Element] = []
        self._to_gpu: Counter[tuple[int, int]] = Counter()
        for index, device in gpus.items():
            gpu = device.element.child("gpu")
            left = MAX_NVLINKS
            for nvlink in gpu.children if gpu else ():
                if nvlink.tag == "nvlink":
                    left -= self._add(index, nvlink, indexes)
                    if left < 0:
                        raise nvlink.refused(f"more than {MAX_NVLINKS} NVLinks on one GPU")

    def _add(self, index: int, nvlink: Element, indexes: dict[str | None, int]) -> int:
        """Return how many links were added."""
        count = nvlink.number("count", 0, MAX_NVLINKS) or 0
        kind = nvlink.attributes.get("tclass", "")
        peer = indexes.get(_spelled(nvlink.attributes.get("target", "")))
        if peer is None and not kind.startswith(("0x03", "0x068001")):
            # NCCL, too, takes a far end that cannot be read for an NVSwitch; 0x068001 is POWER's bridge to the CPU.
            self.to_switch[index] += count
            return count
        if peer == index and count:
            self.to_self.append(nvlink)
        if peer is None or peer == index:
            return 0
        self._to_gpu[index, peer] += count
        return count

    def between(self, a: int, b: int) -> int:
        return min(self._to_gpu[a, b], self._to_gpu[b, a])


def _gpu(index: int, device: _Device, switch_links: int, model: str | None) -> Gpu:
    pci, gpu, cpu = device.element, device.element.child("gpu"), device.cpu
    capability = gpu.number("sm", 30, 999) if gpu else None
    numa_node = cpu.number("numaid", -1, 4095) if cpu else None
    speed = pci.attributes.get("link_speed", "").split()
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        model=model or UNKNOWN_MODEL,
        pci=device.bus_id,
        numa_node=None if numa_node == -1 else numa_node,
        cpu_affinity=_cpu_list(cpu.attributes.get("affinity", "")) if cpu else None,
        compute_capability=divmod(capability, 10) if capability else None,
        switch_links=switch_links,
        pcie_generation=_GENERATIONS.get(speed[0]) if speed else None,
        pcie_width=pci.number("link_width", 0, 64) or None,
    )


def _nics(system: Element, gpus: dict[int, _Device]) -> Iterator[Nic]:
    everything = [_nic_device(element) for element in system.walk() if element.tag == "net" or _is_bare_nic(element)]
    devices = list(_once(everything))
    if len(devices) > MAX_NICS:
        raise system.refused(f"more than {MAX_NICS} NICs")
    for place, device in enumerate(devices):
        numa_node = device.cpu.number("numaid", -1, 4095) if device.cpu else None
        others = ((other, found) for other, found in enumerate(devices) if other != place)
        yield Nic(
            name=f"NIC{place}",
            device=device.element.attributes.get("name"),
            pci=device.bus_id,
            numa_node=None if numa_node == -1 else numa_node,
            paths=tuple((index, _path(device, gpus[index])) for index in sorted(gpus) if _has_place(device)),
            nic_paths=tuple(
                (f"NIC{other}", _path(device, found)) for other, found in others if _has_place(device, found)
            ),
        )


def _once(devices: Sequence[_Device]) -> Iterator[_Device]:
    """Give each interface without a PCI address once, and without a place where it stands under several CPUs.

    A dump of several ranks repeats virtual interfaces under the CPU of each rank.
    """
    virtual = [device.element.attributes.get("name") for device in devices if device.bus_id is None]
    copies = Counter(name for name in virtual if name is not None)
    given: set[str] = set()
    for device in devices:
        name = device.element.attributes.get("name")
        if device.bus_id is not None or name is None or copies[name] == 1:
            yield device
        elif name not in given:
            given.add(name)
            yield _Device(device.element, None, (), None)


def _is_bare_nic(element: Element) -> bool:
    is_nic = element.attributes.get("class", "").startswith(("0x0200", "0x0207"))
    return element.tag == "pci" and is_nic and element.child("nic") is None


def _nic_device(element: Element) -> _Device:
    around = (element, *element.ancestors())
    return _device(element, next((found for found in around if found.tag == "pci"), None))


def _cpu_vendor(cpu: Element) -> str | None:
    arch = cpu.attributes.get("arch", "")
    if arch.startswith("ppc64"):
        return "power9"
    if arch in {"arm64", "aarch64"}:
        return "arm"
    return _VENDORS.get(cpu.attributes.get("vendor", ""))


def _cpu_model(cpu: Element) -> str | None:
    family, model = cpu.number("familyid", 0, 9999), cpu.number("modelid", 0, 9999)
    return None if family is None or model is None else f"{family}/{model}"


def _cpu_list(mask: str) -> str | None:
    """Return the kernel's list for its mask.

    >>> _cpu_list("000000ff,ffff0000,00ffffff")
    '0-23,48-71'
    """
    words = mask.split(",")
    if len(words) > 256 or not all(re.fullmatch(r"[0-9a-fA-F]{1,8}", word) for word in words):
        return None
    bits = bin(int("".join(word.zfill(8) for word in words), 16))[:1:-1]
    runs = ((found.start(), found.end() - 1) for found in re.finditer("1+", bits))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or None
