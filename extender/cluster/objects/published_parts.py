"""The MIG devices that a node's DRA driver publishes, as slices of GPUs, and the counters that its devices share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from extender.cluster.objects.quantities import Amount
from topology.node.model import NodeTopology
from topology.node.slices import Slice

CounterName = tuple[str, str, str]
"""Pool, counter set and counter."""


@dataclass(frozen=True, slots=True)
class PublishedPart:
    """One MIG device."""

    pool: str
    name: str
    gpu: str
    """UUID of its GPU."""
    uuid: str
    """Its own; of one that is made on demand one that stays the same, though the device has another each time."""
    profile: str
    memory_bytes: int
    start: int
    size: int
    on_demand: bool
    """Its GPU is offered whole, too, or it does not exist before a pod gets it."""


@dataclass(frozen=True, slots=True)
class SharedCounters:
    """How much devices take of what they share."""

    capacity: Mapping[CounterName, Amount] = field(default_factory=dict)
    used: Mapping[str, Mapping[CounterName, Amount]] = field(default_factory=dict)
    """By UUID, of GPUs and MIG devices."""

    def exhausted_beside(self, held: Collection[str]) -> frozenset[str]:
        """Return the devices for which too little is left while somebody has these; linear in all that devices take."""
        spent = dict[CounterName, Amount]()
        for device in held:
            for counter, amount in self.used.get(device, {}).items():
                spent[counter] = spent.get(counter, 0) + amount
        left = {counter: self.capacity.get(counter, 0) - amount for counter, amount in spent.items()}
        return frozenset(
            device
            for device, amounts in self.used.items()
            if left
            and device not in held
            and any(amounts[counter] > left[counter] for counter in amounts.keys() & left)
        )

    def excluded_by_pairs(self, devices: Sequence[str]) -> list[int]:
        """Return for each of these devices those of them for which too little is left beside it, as a mask over positions."""
        takers = dict[CounterName, dict[Amount, list[int]]]()
        for position, device in enumerate(devices):
            for counter, amount in self.used.get(device, {}).items():
                takers.setdefault(counter, {}).setdefault(amount, []).append(position)
        excluded = [0] * len(devices)
        for counter, by_amount in takers.items():
            limit = self.capacity.get(counter, 0)
            masks = {amount: sum(1 << position for position in positions) for amount, positions in by_amount.items()}
            for amount, positions in by_amount.items():
                others = sum(mask for other, mask in masks.items() if amount + other > limit)
                for position in positions if others else ():
                    excluded[position] |= others & ~(1 << position)
        return excluded


@dataclass(frozen=True, slots=True, eq=False)
class PublishedParts:
    """What a node's driver publishes beside whole GPUs."""

    parts: tuple[PublishedPart, ...] = ()
    counters: SharedCounters = SharedCounters()
    unusable: frozenset[str] = frozenset()
    """UUIDs of MIG devices that nobody gets."""
    by_device: Mapping[tuple[str, str], str] = field(init=False)
    """Pool and name → UUID."""
    uuids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Index them."""
        object.__setattr__(self, "by_device", {(part.pool, part.name): part.uuid for part in self.parts})
        object.__setattr__(self, "uuids", frozenset(part.uuid for part in self.parts))

    def cut_out_of(self, node: NodeTopology, uuids: Collection[str]) -> tuple[tuple[Slice, ...], tuple[str, ...]]:
        """Return these as slices of a node's GPUs, and their UUIDs, in one order; `uuids` are the GPUs by position."""
        index_of = dict(zip(uuids, (gpu.index for gpu in node.gpus), strict=True))
        known = [(index_of[part.gpu], part) for part in self.parts if part.gpu in index_of]
        known.sort(key=lambda item: (item[0], item[1].start, item[1].size, item[1].pool, item[1].name))
        ordered = tuple(part.uuid for _, part in known)
        excluded = self.counters.excluded_by_pairs(ordered)
        slices = tuple(
            Slice(
                gpu=index,
                uuid=f"slice {i}",
                profile=part.profile,
                memory_bytes=part.memory_bytes,
                start=part.start,
                size=part.size,
                gpu_instance=i,
                compute_instance=0,
                on_demand=part.on_demand,
                excluded=excluded[i] if part.on_demand else 0,
            )
            for i, (index, part) in enumerate(known)
        )
        return slices, ordered
