"""GPUs, and the MIG slices that are cut out of them, as rows of tables.

The last two columns are optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from extender.inspect.inspection import GpuInfo, PodInfo
from extender.inspect.shares import SharedGpuInfo
from extender.inspect.slices import SliceInfo

GPUS: Final = ("GPU", "STATE", "POD", "CONTAINER", "NUMA", "UUID", "REASON", "MODEL", "MEMORY-GIB")
SLICES: Final = ("GPU", "SLICE", "STATE", "POD", "CONTAINER", "UUID", "REASON", "PLACE", "MEMORY-GIB")
SHARED: Final = ("GPU", "SHARED", "CLASS", "POD", "CONTAINER", "GIB")
_BAR: Final = 16
"""Characters of a full GPU."""


def gpu_row(gpu: GpuInfo) -> Sequence[str]:
    """Return the row of a GPU."""
    numa = "" if gpu.numa_node is None else str(gpu.numa_node)
    memory = "" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.4g}"
    said = (gpu.pod or "", gpu.container or "", numa, gpu.uuid, gpu.line)
    return str(gpu.index), gpu.state, *said, gpu.model, memory


def slice_row(mig_slice: SliceInfo) -> Sequence[str]:
    """Return the row of a slice; its place is where it begins in the GPU's memory, and how much of it it takes."""
    said = (mig_slice.pod or "", mig_slice.container or "", mig_slice.uuid, mig_slice.line)
    return (
        str(mig_slice.gpu),
        mig_slice.profile,
        mig_slice.state,
        *said,
        f"{mig_slice.start}:{mig_slice.size}",
        f"{mig_slice.memory_bytes / 2**30:.4g}",
    )


def share_rows(gpu: SharedGpuInfo) -> Iterator[Sequence[str]]:
    """Yield a row for each share of a GPU; the first shows how full the GPU is."""
    filled = min(_BAR, -(-gpu.used_gib * _BAR // gpu.share_gib)) if gpu.share_gib else 0
    bar = f"{'█' * filled}{'░' * (_BAR - filled)} {gpu.line}"
    if not gpu.shares:
        yield str(gpu.gpu), bar, gpu.sharing_class or "", "", "", ""
    for first, share in zip((str(gpu.gpu), *[""] * len(gpu.shares)), gpu.shares, strict=False):
        memory = "all" if share.memory_gib is None else str(share.memory_gib)
        class_ = "?" if share.sharing_class is None else share.sharing_class
        yield first, bar if first else "", class_, share.pod, share.container, memory


def share_of(pod: PodInfo) -> str:
    """Return a pod's share of GPU memory, and what enforces it, as the end of a sentence; empty for whole GPUs."""
    if not pod.memory_gib:
        return ""
    shares = ", ".join(f"{container} has {gib} GiB" for container, gib in pod.memory_gib.items())
    return f": {shares}" + (f", {pod.limits.words}" if pod.limits else "")
