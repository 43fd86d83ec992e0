"""What a request may ask of GPUs whether or not they are free: which suit it, and which it cannot tell apart.

What is not known of a GPU or a driver satisfies no demand. Sets of GPUs are bit masks over positions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fnmatch import filter as filter_names
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from topology.node.links import PciePath
from topology.node.model import Gpu, NodeTopology
from topology.request.gpu_request import GpuRequest

NEARLY: Final = 0.9
"""Of the memory asked for: from here on a GPU is named as near. An "80 GB" H100 has 79.65 GiB, a "24 GB" L4 22.49."""


def anonymous(node: NodeTopology) -> NodeTopology:
    """Return the node without what no request can ask about: UUIDs, PCI addresses, names of NICs and of the NVLink domain.

    What MIG calls its instances goes, too.
    """
    gpus = tuple(replace(gpu, uuid=str(gpu.index), pci=None, cpu_affinity=None) for gpu in node.gpus)
    nics = tuple(replace(nic, name=str(i), device=None, pci=None, nic_paths=()) for i, nic in enumerate(node.nics))
    slices = tuple(
        replace(each, uuid=f"slice {i}", gpu_instance=i, compute_instance=0) for i, each in enumerate(node.slices)
    )
    return replace(node, gpus=gpus, nics=nics, domain=None, slices=slices)


def kinds(node: NodeTopology) -> list[Hashable]:
    """Return for each GPU what a request can tell it from others by, beside its links."""
    near = gpus_near_nic(node)
    return [
        (gpu.model, gpu.memory_bytes, gpu.compute_capability, gpu.ecc_enabled, gpu.mig_enabled, near >> i & 1)
        for i, gpu in enumerate(node.gpus)
    ]


def gpus_near_nic(node: NodeTopology) -> int:
    """Return the GPUs that have an RDMA NIC under their PCIe switch."""
    near = {index for nic in node.nics for index, path in nic.paths if path <= PciePath.PXB}
    return sum(1 << i for i, gpu in enumerate(node.gpus) if gpu.index in near)


class Lack(NamedTuple):
    """What a node cannot give to a request, whoever has its GPUs: the parts of a rejection."""

    message: str
    figures: str
    remedy: str


def outdated(node: NodeTopology, request: GpuRequest) -> Lack | None:
    """Return what of the node's software is older than asked for."""
    for what, key, has, wanted in (
        ("GPU driver", "min-driver", node.driver_version, request.min_driver),
        ("CUDA version", "min-cuda", node.cuda_version, request.min_cuda),
    ):
        if wanted and not _at_least(has, wanted):
            figures = f"it has {has or 'one that nobody knows'}, pod needs {'.'.join(map(str, wanted))}"
            return Lack(f"{what} is older than {key}", figures, f"upgrade the driver or lower {key}")
    return None


def suitable_gpus(node: NodeTopology, request: GpuRequest) -> int:
    """Return the GPUs that are each as asked for; how near a NIC is, is not looked at."""
    return sum(1 << i for i, gpu in enumerate(node.gpus) if all(rule.suits(gpu, request) for rule in _RULES))


def shortage(node: NodeTopology, request: GpuRequest) -> Lack | None:
    """Return the first rule that leaves fewer GPUs than the pod needs, `None` where enough are as asked for."""
    size = request.gpus
    if len(node.gpus) < size:
        return Lack(f"node has fewer than {size} GPUs", f"it has {len(node.gpus)}", "ask for fewer or use larger nodes")
    return _broken_rule(node.gpus, request, "GPUs")


def slices_as_gpus(node: NodeTopology) -> tuple[Gpu, ...]:
    """Return for each slice the GPU that a container would take it for."""
    parents = {gpu.index: gpu for gpu in node.gpus}
    return tuple(
        replace(parents[each.gpu], uuid=each.uuid, memory_bytes=each.memory_bytes, mig_enabled=False)
        for each in node.slices
    )


def suitable_slices(node: NodeTopology, request: GpuRequest) -> int:
    """Return the slices that are each as asked for, whatever their profile; bit i stands for the i-th."""
    stand_ins = enumerate(slices_as_gpus(node))
    return sum(1 << i for i, gpu in stand_ins if all(rule.suits(gpu, request) for rule in _RULES))


def shortage_of_slices(node: NodeTopology, slices: int, request: GpuRequest) -> Lack | None:
    """Return the first rule that leaves fewer of these slices than the pod needs."""
    stand_ins = tuple(gpu for i, gpu in enumerate(slices_as_gpus(node)) if slices >> i & 1)
    return _broken_rule(stand_ins, request, "MIG slices")


def _broken_rule(gpus: tuple[Gpu, ...], request: GpuRequest, noun: str) -> Lack | None:
    left, size = gpus, request.gpus
    for rule in _RULES:
        before, left = left, tuple(gpu for gpu in left if rule.suits(gpu, request))
        if len(left) < size:
            figures = f"{len(left)} of {len(before)}, pod needs {size}" + rule.what_there_is(before)
            return Lack(
                f"{_few(len(left), size)} of the node's {noun} {rule.says(request)}",
                figures,
                rule.remedy(before, request),
            )
    return None


def without_nic(near: int, size: int) -> Lack:
    """Return what a node lacks where too few of the suitable GPUs are near a NIC."""
    message = f"{_few(near, size)} of the node's GPUs have an RDMA NIC under their PCIe switch"
    return Lack(message, f"{near} have, pod needs {size}", "set nic-affinity to preferred")


def _few(count: int, size: int) -> str:
    return f"fewer than {size}" if count else "none"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One thing that may be asked of a GPU."""

    suits: Callable[[Gpu, GpuRequest], bool]
    says: Callable[[GpuRequest], str]
    remedy: Callable[[Sequence[Gpu], GpuRequest], str]
    """From what those have that were left by the rules before."""
    what_there_is: Callable[[Sequence[Gpu]], str] = lambda gpus: ""
    """What those have that were left by the rules before, for people."""


def _has_model(gpu: Gpu, request: GpuRequest) -> bool:
    return not request.models or any(fnmatchcase(gpu.model.lower(), glob) for glob in request.models)


def _wider_model(gpus: Sequence[Gpu], request: GpuRequest) -> str:
    """Name the glob that was probably meant: part of a name matches nothing without `*` on both sides."""
    names = {gpu.model.lower() for gpu in gpus}
    useless = (glob for glob in request.models if not filter_names(names, glob))
    meant = next((wider for glob in useless if filter_names(names, wider := f"*{glob.strip('*')}*")), None)
    return f"gpu-model has globs: did you mean {meant}?" if meant else "widen gpu-model or add such nodes"


def _lower_memory(gpus: Sequence[Gpu], request: GpuRequest) -> str:
    """Say what would do where little is missing: of the memory on a GPU's name its driver reports some percent less."""
    memory = sorted((gpu.memory_bytes or 0 for gpu in gpus), reverse=True)[max(0, request.gpus - 1)]
    if memory < NEARLY * (request.min_memory_bytes or 0):
        return "lower min-gpu-memory or add such nodes"
    return f"the nearest have {memory / 2**30:.4g} GiB: lower min-gpu-memory to {memory >> 30}Gi"


def _largest_memory(gpus: Sequence[Gpu]) -> str:
    return f"; the largest has {max(gpu.memory_bytes or 0 for gpu in gpus) / 2**30:.4g} GiB"


def _highest_capability(gpus: Sequence[Gpu]) -> str:
    major, minor = max(gpu.compute_capability or (0, 0) for gpu in gpus)
    return f"; the highest is {major}.{minor}"


_RULES = (
    _Rule(
        lambda gpu, request: not gpu.mig_enabled,
        lambda request: "are whole: MIG is on",
        lambda gpus, request: "switch MIG off there",
    ),
    _Rule(
        _has_model,
        lambda request: "match gpu-model",
        _wider_model,
        lambda gpus: f"; they are {', '.join(sorted({gpu.model for gpu in gpus}))}",
    ),
    _Rule(
        lambda gpu, request: (gpu.memory_bytes or 0) >= (request.min_memory_bytes or 0),
        lambda request: "have min-gpu-memory",
        _lower_memory,
        _largest_memory,
    ),
    _Rule(
        lambda gpu, request: (gpu.compute_capability or (0, 0)) >= (request.min_compute_capability or (0, 0)),
        lambda request: "reach min-compute-capability",
        lambda gpus, request: "lower min-compute-capability or add such nodes",
        _highest_capability,
    ),
    _Rule(
        lambda gpu, request: request.ecc is None or gpu.ecc_enabled is request.ecc,
        lambda request: f"have ECC {'on' if request.ecc else 'off'}",
        lambda gpus, request: "switch ECC there or drop the annotation ecc",
    ),
)
"""In the order in which they are named where several are broken."""


def _at_least(version: str | None, wanted: tuple[int, ...]) -> bool:
    parts = (version or "").split(".")
    if not all(part.isdecimal() and part.isascii() for part in parts):
        return False
    return tuple(map(int, parts)) >= wanted
