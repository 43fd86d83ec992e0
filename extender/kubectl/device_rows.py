"""GPUs, and the MIG slices that are cut out of them, as rows of tables; the last two columns are for those who ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from extender.inspect.inspection import GpuInfo
from extender.inspect.slices import SliceInfo

GPUS: Final = ("GPU", "STATE", "POD", "CONTAINER", "NUMA", "UUID", "REASON", "MODEL", "MEMORY-GIB")
SLICES: Final = ("GPU", "SLICE", "STATE", "POD", "CONTAINER", "UUID", "REASON", "PLACE", "MEMORY-GIB")


def gpu_row(gpu: GpuInfo) -> Sequence[str]:
    """Return the row of a GPU."""
    numa = "" if gpu.numa_node is None else str(gpu.numa_node)
    memory = "" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.4g}"
    said = (gpu.pod or "", gpu.container or "", numa, gpu.uuid, gpu.line)
    return str(gpu.index), gpu.state, *said, gpu.model, memory


def slice_row(each: SliceInfo) -> Sequence[str]:
    """Return the row of a slice; its place is where it begins in the GPU's memory, and how much of it it takes."""
    said = (each.pod or "", each.container or "", each.uuid, each.line)
    return (
        str(each.gpu),
        each.profile,
        each.state,
        *said,
        f"{each.start}:{each.size}",
        f"{each.memory_bytes / 2**30:.4g}",
    )
