"""What `plan` is told of GPUs that pods share."""

from __future__ import annotations

import re

from benchmarks.commands.answers import refuse
from topology.formats.catalog import GIB, MACHINES
from topology.node.model import Gpu, NodeTopology
from topology.placement.shares import SharedGpu, Shares

_CLAIMED = re.compile(r"([0-9]{1,4})=([0-9]{1,5})")
_NAMED_GB = re.compile(r"\b([0-9]{1,4}) ?GB\b")


def claimed_gib(node: NodeTopology, text: str | None) -> dict[int, int]:
    """Read `0=60,3=20`, what others have of GPUs by index; returns it by position."""
    claimed: dict[int, int] = {}
    for part in filter(None, (text or "").split(",")):
        pair = _CLAIMED.fullmatch(part.strip())
        if pair is None:
            refuse(f"--shared {text!r}: {part!r} is not a GPU index with its GiB, such as 0=60")
        index, gib = int(pair[1]), int(pair[2])
        if index not in node.positions:
            refuse(f"--shared {text!r}: the node has no GPU {index}")
        position = node.positions[index]
        if position in claimed:
            refuse(f"--shared {text!r}: GPU {index} is there twice")
        if gib < 1:
            refuse(f"--shared {text!r}: a GPU of which nobody has anything is free, and not shared")
        claimed[position] = gib
    return claimed


def shares_of(node: NodeTopology, free: int, claimed: dict[int, int], reserve_gib: int) -> Shares:
    """Return what shares may take: of free GPUs (mask) all but the reserve, of shared ones what nobody has claimed."""
    share_gib = tuple(max(0, _memory_gib(gpu) - reserve_gib) for gpu in node.gpus)
    for position, gib in claimed.items():
        if gib > share_gib[position]:
            refuse(f"--shared: GPU {node.gpus[position].index} has {share_gib[position]} GiB to share, and not {gib}")
    shared = tuple(SharedGpu(position, share_gib[position] - gib) for position, gib in sorted(claimed.items()))
    return Shares(share_gib, shared, free)


def _memory_gib(gpu: Gpu) -> int:
    """Return the GPU's memory; where the source does not tell, as the catalogue or the name of its model has it."""
    if gpu.memory_bytes is not None:
        return gpu.memory_bytes // GIB
    for machine in MACHINES.values():
        for other in machine.build().gpus:
            if other.model == gpu.model and other.memory_bytes is not None:
                return other.memory_bytes // GIB
    named = _NAMED_GB.search(gpu.model or "")
    if named is None:
        refuse(f"the memory of GPU {gpu.index} is not known; name its model with --gpu-model")
    return int(named[1])
