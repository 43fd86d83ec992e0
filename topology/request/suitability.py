"""What a request may ask of GPUs whether or not they are free: which suit it, and which it cannot tell apart.

What is not known of a GPU or a driver satisfies no demand. Sets of GPUs are bit masks over positions.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from fnmatch import fnmatchcase

from topology.node.links import PciePath
from topology.node.model import Gpu, NodeTopology
from topology.request.gpu_request import GpuRequest


def anonymous(node: NodeTopology) -> NodeTopology:
    """Return the node without what no request can ask about: UUIDs, PCI addresses, names of NICs and of the NVLink domain."""
    gpus = tuple(replace(gpu, uuid=str(gpu.index), pci=None, cpu_affinity=None) for gpu in node.gpus)
    nics = tuple(replace(nic, name=str(i), device=None, pci=None, nic_paths=()) for i, nic in enumerate(node.nics))
    return replace(node, gpus=gpus, nics=nics, domain=None)


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


def outdated(node: NodeTopology, request: GpuRequest) -> str | None:
    """Return what of the node's software is older than asked for, in words for a rejection."""
    if request.min_driver and not _at_least(node.driver_version, request.min_driver):
        return "driver is older than asked for"
    if request.min_cuda and not _at_least(node.cuda_version, request.min_cuda):
        return "CUDA version is older than asked for"
    return None


def suitable_gpus(node: NodeTopology, request: GpuRequest) -> int:
    """Return the GPUs that are each as asked for; how near a NIC is, is not looked at."""
    return sum(1 << i for i, gpu in enumerate(node.gpus) if _suits(gpu, request))


def _suits(gpu: Gpu, request: GpuRequest) -> bool:
    if gpu.mig_enabled:
        return False
    if request.models and not any(fnmatchcase(gpu.model.lower(), glob) for glob in request.models):
        return False
    if request.min_memory_bytes and (gpu.memory_bytes or 0) < request.min_memory_bytes:
        return False
    if request.min_compute_capability and (gpu.compute_capability or (0, 0)) < request.min_compute_capability:
        return False
    return request.ecc is None or gpu.ecc_enabled is request.ecc


def _at_least(version: str | None, wanted: tuple[int, ...]) -> bool:
    parts = (version or "").split(".")
    if not all(part.isdecimal() and part.isascii() for part in parts):
        return False
    return tuple(map(int, parts)) >= wanted
