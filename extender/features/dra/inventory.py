"""Which GPUs and MIG devices of a node can be allocated by what the driver publishes, whoever holds them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from extender.cluster.objects.devices import DRIVER, Device, ResourceClaim, ResourceSlice
from extender.cluster.objects.published_parts import CounterName, PublishedPart, PublishedParts, SharedCounters
from extender.cluster.objects.quantities import Amount, quantity
from topology.node.silicon import SLICE_PREFIX

MAX_DEVICES: Final = 512
"""Of a node: if its driver publishes more, no MIG device is allocated there, and no GPU that shares counters."""
MAX_AMOUNTS: Final = 8192
"""The same of what all devices of a node take of counters; eight GPUs with 40 MIG devices each have about 4,500."""
PROFILE: Final = re.compile(r"([1-9]c\.)?[1-9]g\.[0-9]{1,4}gb([+-][a-z.,]{1,16})?")
_Amounts = Mapping[tuple[str, str], Amount]
"""By counter set and counter."""
_MEMORY_SLICE: Final = re.compile(r"memory-?[sS]lice-?([0-9]|[1-5][0-9]|6[0-3])")
"""As NVIDIA names them among counters and capacities."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """What identifies a device in the whole cluster."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A whole GPU or a MIG device that a driver publishes."""

    id: DeviceId
    uuid: str
    """As ledgers name it."""
    device: Device


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """The devices of one node."""

    gpus: Mapping[str, PublishedDevice] = field(default_factory=dict)
    """By UUID, all whole GPUs that are published by complete pools of the newest generation."""
    excluded: frozenset[str] = frozenset()
    """UUIDs of those that are never allocated."""
    parts: PublishedParts = field(default_factory=PublishedParts)
    """The MIG devices of these pools."""
    mig_devices: Mapping[str, PublishedDevice] = field(default_factory=dict)
    """The same by UUID, as they are published."""

    def device(self, uuid: str) -> PublishedDevice | None:
        """Return a GPU or MIG device."""
        return self.gpus.get(uuid) or self.mig_devices.get(uuid)

    def allocatable(self, profile: str = "") -> Iterator[PublishedDevice]:
        """Yield the GPUs that are allocated, or the MIG devices of a profile that are."""
        if not profile:
            return (gpu for uuid, gpu in self.gpus.items() if uuid not in self.excluded)
        return (
            self.mig_devices[part.uuid]
            for part in self.parts.parts
            if part.profile == profile and part.uuid not in self.parts.unusable
        )


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
    gpus, excluded, pools = dict[str, PublishedDevice](), set[str](), list[Sequence[ResourceSlice]]()
    for _, published in sorted(by_pool.items()):
        newest = newest_generation(published)
        if invalid(newest) is not None:
            continue
        for gpu in _gpus(node, newest):
            if gpu.uuid in gpus or _is_unsuitable(gpu.device):
                excluded.add(gpu.uuid)
            gpus[gpu.uuid] = gpu
        excluded |= _out_of_counters(newest)
        pools.append(newest)
    return _with_mig_devices(node, pools, gpus, frozenset(excluded))


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
                total[consumed.counter_set, name] += _amount(amount.value)  # type: ignore[assignment]
    return total


def capacity(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], Amount]:
    """Return counter set and counter → what a pool has of it; raises `ValueError` for what cannot be read."""
    sets = (counter_set for item in slices for counter_set in item.spec.shared_counters or ())
    return {
        (counter_set.name, name): _amount(amount.value)
        for counter_set in sets
        for name, amount in (counter_set.counters or {}).items()
    }


@lru_cache(4096)
def _amount(text: str | int) -> Amount:
    """Return an amount of a counter, most of which are whole numbers: these are compared ten times as fast."""
    amount = quantity(text)
    return amount.numerator if amount.denominator == 1 else amount


def _gpus(node: str, slices: Iterable[ResourceSlice]) -> Iterator[PublishedDevice]:
    for item in slices:
        for device in item.spec.devices or ():
            uuid = device.text("uuid")
            if item.spec.node_name == node and device.is_whole and uuid and device.text("type") in (None, "gpu"):
                yield PublishedDevice(id_of(item, device), uuid, device)


def uuid_of(device: Device) -> str | None:
    """Return how ledgers name a GPU or MIG device; `None`: it is neither, or nobody can tell which GPU it is of.

    A MIG device that is made when it is needed has no UUID before. It gets one here, by its GPU and its name, which says its
    place: no other device of the cluster has the same.
    """
    uuid, parent = device.text("uuid"), device.text("parentUUID")
    if device.text("type") in (None, "gpu") and device.is_whole:
        return uuid
    if device.text("type") != "mig" or not parent or not PROFILE.fullmatch(profile_of(device)):
        return None
    uuid = uuid or _name_for(parent, device.name)
    return uuid if uuid.startswith(SLICE_PREFIX) else None


@lru_cache(16_384)
def _name_for(gpu: str, device: str) -> str:
    return f"{SLICE_PREFIX}{uuid5(NAMESPACE_OID, f'{gpu}/{device}')}"


def profile_of(device: Device) -> str:
    """Return the profile of a MIG device, empty for others."""
    return device.text("profile") or ""


def _with_mig_devices(
    node: str,
    pools: Iterable[Sequence[ResourceSlice]],
    gpus: Mapping[str, PublishedDevice],
    excluded: frozenset[str],
) -> NodeInventory:
    """Return the inventory with MIG devices, and what all devices take of counters; without, where there are too many."""
    parts, devices, unusable = list[PublishedPart](), dict[str, PublishedDevice](), set[str]()
    capacities, used, amounts_read = dict[CounterName, Amount](), dict[str, Mapping[CounterName, Amount]](), 0
    for newest in pools:
        published = [(item, device) for item in newest for device in item.spec.devices or ()]
        amounts_read += sum(
            len(consumed.counters or ()) for _, device in published for consumed in device.consumes_counters or ()
        )
        if len(published) + len(used) > MAX_DEVICES or amounts_read > MAX_AMOUNTS:
            return NodeInventory(gpus, excluded | {uuid for uuid, gpu in gpus.items() if gpu.device.consumes_counters})
        name, limits = newest[0].spec.pool.name, _readable_capacity(newest)
        capacities |= {(name, *counter): amount for counter, amount in limits.items()}
        for item, device in published:
            uuid, parent = uuid_of(device), device.text("parentUUID")
            if uuid is None or item.spec.node_name != node:
                continue
            amounts = _readable_consumption(device)
            used[uuid] = {(name, *counter): amount for counter, amount in (amounts or {}).items()}
            if parent is None:
                continue
            if uuid in devices or _is_unusable(device) or not _has_counters(device, amounts, limits):
                unusable.add(uuid)
            devices[uuid] = PublishedDevice(id_of(item, device), uuid, device)
            parts.append(_part(devices[uuid], parent, is_offered_whole=parent in gpus))
    counters = SharedCounters(capacities, {uuid: amounts for uuid, amounts in used.items() if amounts})
    return NodeInventory(gpus, excluded, PublishedParts(tuple(parts), counters, frozenset(unusable)), devices)


def _part(published: PublishedDevice, parent: str, *, is_offered_whole: bool) -> PublishedPart:
    device = published.device
    places = [number for name in _resources(device) if (number := _memory_slice(name)) is not None]
    start, end = (min(places), max(places) + 1) if places else (0, 0)
    memory = (device.capacity or {}).get("memory")
    try:
        memory_bytes = int(quantity(memory.value)) if memory else 0
    except ValueError:
        memory_bytes = 0
    on_demand = is_offered_whole or device.text("uuid") is None
    where = published.id.pool, published.id.name, parent, published.uuid
    return PublishedPart(*where, profile_of(device), memory_bytes, start, end - start, on_demand)


def _resources(device: Device) -> Iterator[str]:
    """Yield the names of what a MIG device has of its GPU: by counters where it is made when it is needed."""
    for consumed in device.consumes_counters or ():
        yield from (name for name, amount in (consumed.counters or {}).items() if str(amount.value) != "0")
    yield from device.capacity or ()


@lru_cache(1024)
def _memory_slice(name: str) -> int | None:
    match = _MEMORY_SLICE.fullmatch(name)
    return int(match[1]) if match else None


def _is_unusable(device: Device) -> bool:
    return _is_unsuitable(device) or any(taint.keeps_pods_away for taint in device.taints or ())


def _has_counters(device: Device, amounts: _Amounts | None, limits: _Amounts) -> bool:
    """Whether it is known what a device takes of its GPU, unless it exists anyway, and there is so much."""
    if not device.consumes_counters:
        return device.text("uuid") is not None
    return amounts is not None and all(amount <= limits.get(counter, 0) for counter, amount in amounts.items())


def _readable_consumption(device: Device) -> _Amounts | None:
    amounts = dict[tuple[str, str], Amount]()
    try:
        for consumed in device.consumes_counters or ():
            for name, amount in (consumed.counters or {}).items():
                counter = consumed.counter_set, name
                amounts[counter] = amounts.get(counter, 0) + _amount(amount.value)
    except ValueError:
        return None
    return amounts


def _readable_capacity(slices: Iterable[ResourceSlice]) -> _Amounts:
    try:
        return capacity(slices)
    except ValueError:
        return {}


def _out_of_counters(slices: Sequence[ResourceSlice]) -> set[str]:
    """Return the GPUs that share a counter which does not suffice for all GPUs, or whose counters cannot be read."""
    devices = (device for item in slices for device in item.spec.devices or () if device.is_whole)
    counted = [(device.gpu, device) for device in devices if device.consumes_counters and device.gpu]
    try:
        limits, used = capacity(slices), consumption(device for _, device in counted)
        short = {counter for counter, amount in used.items() if amount > limits.get(counter, 0)}
        return {gpu for gpu, device in counted if consumption([device]).keys() & short}
    except ValueError:
        return {gpu for gpu, _ in counted}


def _is_unsuitable(device: Device) -> bool:
    """Whether a GPU is never allocated as a whole: it has binding conditions or groups, or several claims may share it."""
    groups = any(consumed.compatibility_groups for consumed in device.consumes_counters or ())
    return bool(device.binding_conditions or device.allow_multiple_allocations or groups)
