"""Which GPUs of a node can be allocated: what the driver publishes, without what is taken or incomplete."""

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
    """The GPUs of one node, by UUID."""

    node: str
    gpus: Mapping[str, PublishedGpu] = field(default_factory=dict)
    """All whole GPUs that are published by complete pools of the newest generation, whether they are free or not."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """UUID → why this GPU cannot be allocated now. A taint is not among the reasons: requests may tolerate it."""
    trouble: tuple[str, ...] = ()
    """Pools that are not allocated from, each with the reason."""

    def free(self) -> Iterator[PublishedGpu]:
        """Yield the GPUs that nothing excludes."""
        return (gpu for uuid, gpu in self.gpus.items() if uuid not in self.excluded)


def taken_by(claims: Iterable[ResourceClaim]) -> dict[DeviceId, str]:
    """Return each GPU device that a claim of any class holds, with the claim's namespace and name; admin access takes nothing."""
    held = ((claim, result) for claim in claims for result in claim.held)
    return {DeviceId(result.driver, result.pool, result.device): claim.name for claim, result in held}


def read_inventory(
    node: str,
    slices: Iterable[ResourceSlice],
    taken: Mapping[DeviceId, str],
    recorded: Mapping[DeviceId, str] | None = None,
) -> NodeInventory:
    """Read what a node has. Devices that are held and not published close the node by themselves (`NodeDevices.unmatched`).

    Args:
        node: Its name.
        slices: All slices of the pools that have devices there, of all generations.
        taken: Device → the claim that holds it or is about to.
        recorded: Device → UUID, as our ledger has it of allocations that are not over. A device whose UUID is another one
            now is excluded, and so is the GPU that the ledger names.

    """
    by_pool: defaultdict[str, list[ResourceSlice]] = defaultdict(list)
    for item in slices:
        if item.spec.driver == DRIVER:
            by_pool[item.spec.pool.name].append(item)
    gpus, excluded, trouble = dict[str, PublishedGpu](), dict[str, str](), list[str]()
    for name, published in sorted(by_pool.items()):
        newest = newest_generation(published)
        reason = invalid(newest)
        if reason is not None:
            trouble.append(f"pool {name}: {reason}")
            continue
        for gpu in _gpus(node, newest):
            if gpu.uuid in gpus:
                excluded[gpu.uuid] = f"published twice, as {gpus[gpu.uuid].id} and {gpu.id}"
            gpus[gpu.uuid] = gpu
        excluded |= {**_taken(newest, taken), **_out_of_counters(newest, taken)}
    for gpu in gpus.values():
        reason = _unsuitable(gpu.device)
        before = (recorded or {}).get(gpu.id, gpu.uuid)
        if before != gpu.uuid:
            reason = f"device {gpu.id} was {before} when it was allocated, and is {gpu.uuid} now"
            excluded[before] = reason
        if reason is not None:
            excluded.setdefault(gpu.uuid, reason)
    return NodeInventory(node, gpus, {uuid: excluded[uuid] for uuid in sorted(excluded)}, tuple(trouble))


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


def _taken(slices: Iterable[ResourceSlice], taken: Mapping[DeviceId, str]) -> dict[str, str]:
    """Return the GPUs of which a claim holds all or a part."""
    excluded = dict[str, str]()
    for item in slices:
        for device in item.spec.devices or ():
            claim = taken.get(id_of(item, device))
            if claim is not None and device.gpu is not None:
                what = "it" if device.is_whole else f"its part {device.name}"
                excluded[device.gpu] = f"ResourceClaim {claim} holds {what}"
    return excluded


def _out_of_counters(slices: Sequence[ResourceSlice], taken: Mapping[DeviceId, str]) -> dict[str, str]:
    """Return the GPUs that share a counter which does not suffice for all GPUs that are free, and for what is taken."""
    published = [(id_of(item, device), device) for item in slices for device in item.spec.devices or ()]
    counted = [device for key, device in published if device.consumes_counters and device.is_whole and key not in taken]
    if not counted:
        return {}
    held = [device for key, device in published if key in taken]
    try:
        limits, used = capacity(slices), consumption([*held, *counted])
        short = {counter for counter, amount in used.items() if amount > limits.get(counter, Fraction(0))}
        consumers = {device.gpu: consumption([device]).keys() & short for device in counted}
    except ValueError:
        return {device.gpu: "its counters cannot be read" for device in counted if device.gpu}
    return {
        gpu: f"counter {min(counters)[0]}/{min(counters)[1]} does not suffice"
        for gpu, counters in consumers.items()
        if gpu and counters
    }


def _unsuitable(device: Device) -> str | None:
    """Return why a GPU is never allocated as a whole."""
    if device.binding_conditions:
        return "it has binding conditions, which are not supported"
    if device.allow_multiple_allocations:
        return "several claims may share it, which is not supported"
    if any(consumed.compatibility_groups for consumed in device.consumes_counters or ()):
        return "it has compatibility groups, which are not supported"
    return None
