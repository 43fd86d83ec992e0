"""Which GPUs of a node can be allocated by what the driver publishes, whoever holds them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from extender.cluster.objects.devices import DRIVER, Device, ResourceClaim, ResourceSlice
from extender.cluster.objects.quantities import quantity


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """What identifies a device in the whole cluster."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class PublishedGpu:
    """A whole GPU that a driver publishes."""

    id: DeviceId
    uuid: str
    device: Device


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """The GPUs of one node."""

    gpus: Mapping[str, PublishedGpu] = field(default_factory=dict)
    """By UUID, all whole GPUs that are published by complete pools of the newest generation."""
    excluded: frozenset[str] = frozenset()
    """UUIDs of those that are never allocated."""

    def allocatable(self) -> Iterator[PublishedGpu]:
        """Yield the others."""
        return (gpu for uuid, gpu in self.gpus.items() if uuid not in self.excluded)


def taken_by(claims: Iterable[ResourceClaim]) -> dict[DeviceId, str]:
    """Return each GPU device that a claim of any class holds, with the claim's namespace and name; admin access takes nothing."""
    held = ((claim, result) for claim in claims for result in claim.held)
    return {DeviceId(result.driver, result.pool, result.device): claim.name for claim, result in held}


def read_inventory(node: str, slices: Iterable[ResourceSlice]) -> NodeInventory:
    """Read what a node has. `slices`: all of the pools that have devices there, of all generations."""
    by_pool: defaultdict[str, list[ResourceSlice]] = defaultdict(list)
    for item in slices:
        if item.spec.driver == DRIVER:
            by_pool[item.spec.pool.name].append(item)
    gpus, excluded = dict[str, PublishedGpu](), set[str]()
    for _, published in sorted(by_pool.items()):
        newest = newest_generation(published)
        if invalid(newest) is not None:
            continue
        for gpu in _gpus(node, newest):
            if gpu.uuid in gpus or _is_unsuitable(gpu.device):
                excluded.add(gpu.uuid)
            gpus[gpu.uuid] = gpu
        excluded |= _out_of_counters(newest)
    return NodeInventory(gpus, frozenset(excluded))


def newest_generation(slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of a pool that count, in the order of their names, as kube-scheduler has them."""
    newest = max(item.spec.pool.generation for item in slices)
    return sorted((item for item in slices if item.spec.pool.generation == newest), key=lambda item: item.metadata.name)


def invalid(slices: Sequence[ResourceSlice]) -> str | None:
    """Return why a pool is not allocated from; `slices`: those of its newest generation."""
    counts = {item.spec.pool.resource_slice_count for item in slices}
    if counts != {len(slices)}:
        return f"{len(slices)} of {max(counts)} ResourceSlices of generation {slices[0].spec.pool.generation}"
    names = Counter(device.name for item in slices for device in item.spec.devices or ())
    twice = sorted(name for name, count in names.items() if count > 1)
    return f"device {twice[0]} is published twice" if twice else None


def id_of(item: ResourceSlice, device: Device) -> DeviceId:
    """Return what identifies a device of a slice."""
    return DeviceId(item.spec.driver, item.spec.pool.name, device.name)


def consumption(devices: Iterable[Device]) -> Counter[tuple[str, str]]:
    """Return counter set and counter → what these devices take of it; raises `ValueError` for what cannot be read."""
    total = Counter[tuple[str, str]]()
    for device in devices:
        for consumed in device.consumes_counters or ():
            for name, amount in (consumed.counters or {}).items():
                total[consumed.counter_set, name] += quantity(amount.value)  # type: ignore[assignment]
    return total


def capacity(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], Fraction]:
    """Return counter set and counter → what a pool has of it; raises `ValueError` for what cannot be read."""
    sets = (counter_set for item in slices for counter_set in item.spec.shared_counters or ())
    return {
        (counter_set.name, name): quantity(amount.value)
        for counter_set in sets
        for name, amount in (counter_set.counters or {}).items()
    }


def _gpus(node: str, slices: Iterable[ResourceSlice]) -> Iterator[PublishedGpu]:
    for item in slices:
        for device in item.spec.devices or ():
            uuid = device.text("uuid")
            if item.spec.node_name == node and device.is_whole and uuid and device.text("type") in (None, "gpu"):
                yield PublishedGpu(id_of(item, device), uuid, device)


def _out_of_counters(slices: Sequence[ResourceSlice]) -> set[str]:
    """Return the GPUs that share a counter which does not suffice for all GPUs, or whose counters cannot be read."""
    devices = (device for item in slices for device in item.spec.devices or () if device.is_whole)
    counted = [(device.gpu, device) for device in devices if device.consumes_counters and device.gpu]
    try:
        limits, used = capacity(slices), consumption(device for _, device in counted)
        short = {counter for counter, amount in used.items() if amount > limits.get(counter, Fraction(0))}
        return {gpu for gpu, device in counted if consumption([device]).keys() & short}
    except ValueError:
        return {gpu for gpu, _ in counted}


def _is_unsuitable(device: Device) -> bool:
    """Whether a GPU is never allocated as a whole: it has binding conditions or groups, or several claims may share it."""
    groups = any(consumed.compatibility_groups for consumed in device.consumes_counters or ())
    return bool(device.binding_conditions or device.allow_multiple_allocations or groups)
