"""MIG devices: parts of a GPU that pods get like GPUs of their own. A GPU that is cut into them is given to nobody whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topology.errors import PayloadError

MEMORY_SLICES = 8.0
"""Of a GPU."""
MAX_SLICES_PER_GPU = 8
"""By NVML, one more than any GPU has today."""
MAX_ON_DEMAND_PER_GPU = 64
"""Of those that do not exist yet; a GPU has about 30."""
MAX_DEVICES = 192
"""GPUs and slices of one node that a record tells of: those of 24 GPUs, all cut up."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One MIG device."""

    gpu: int
    """Index of the GPU that it is cut out of."""
    uuid: str
    profile: str
    """As NVIDIA spells it: `1g.10gb`, `1g.10gb+me`, `1c.3g.40gb`."""
    memory_bytes: int
    start: int
    """Of its place in the GPU's memory, in the driver's units."""
    size: int
    """Of that place."""
    gpu_instance: int
    compute_instance: int
    on_demand: bool = False
    """It does not exist before a pod gets it, so GPUs are offered whole and in parts. These exclude each other."""
    excluded: int = 0
    """The node's slices that it leaves too few engines, or too little of what else GPUs count: a mask over positions."""

    @property
    def memory(self) -> int:
        """Its place in the GPU's memory, as a mask."""
        return (1 << self.size) - 1 << self.start

    @property
    def asked_as(self) -> str:
        """The profile as it stands in the name of a resource.

        >>> Slice(0, "MIG-a", "1g.10gb+me", 1 << 33, 0, 1, 7, 0).asked_as
        '1g.10gb.me'
        """
        return as_asked(self.profile)


def as_asked(profile: str) -> str:
    """Return a profile as it stands in the name of a resource."""
    return profile.replace("+", ".")


def parts_of_gpus(slices: Iterable[Slice]) -> tuple[float, ...]:
    """Return what each slice takes of its GPU, by memory; those of one GPU instance share its memory."""
    slices = tuple(slices)
    mates = Counter((each.gpu, each.start) for each in slices if not each.on_demand)
    return tuple(each.size / MEMORY_SLICES / (1 if each.on_demand else mates[each.gpu, each.start]) for each in slices)


def overlaps(slices: Sequence[Slice]) -> tuple[tuple[int, ...], ...]:
    """Return for each slice which others a pod cannot have while another has it.

    Those are of one GPU. They share memory and one is made on demand, or they take more of the GPU than there is.
    """
    by_gpu: dict[int, list[tuple[int, int, bool]]] = {}
    for i, each in enumerate(slices):
        by_gpu.setdefault(each.gpu, []).append((i, each.memory, each.on_demand))
    return tuple(
        tuple(
            j
            for j, memory, on_demand in by_gpu[each.gpu]
            if i != j and ((memory & own and (on_demand or each.on_demand)) or each.excluded >> j & 1)
        )
        for i, (each, own) in enumerate((each, each.memory) for each in slices)
    )  # fmt: skip


def check_slices(slices: tuple[Slice, ...], gpus: set[int], uuids: set[str]) -> None:
    """Raise `PayloadError` when they contradict the GPUs with these indexes and UUIDs, or each other."""
    seen = set(uuids)
    last = (-1, -1, -1)
    for position, each in enumerate(slices):
        here = f"$.slices[{position}]"
        if each.gpu not in gpus:
            raise PayloadError(here, "a slice of a GPU that is not listed")
        if each.uuid in seen:
            raise PayloadError(f"{here}.uuid", "the same UUID twice")
        at = each.gpu, each.gpu_instance, each.compute_instance
        if at <= last:
            raise PayloadError(here, "GPU, GPU instance and compute instance must rise")
        seen.add(each.uuid)
        last = at
    on_demand = sum(each.on_demand for each in slices)
    if len(slices) - on_demand > MAX_SLICES_PER_GPU * len(gpus) or on_demand > MAX_ON_DEMAND_PER_GPU * len(gpus):
        raise PayloadError("$.slices", f"{len(slices)} slices of {len(gpus)} GPUs")
