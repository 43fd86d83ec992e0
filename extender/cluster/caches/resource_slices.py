"""Which GPU stands behind each device that a DRA driver publishes, and which GPUs it keeps pods off.

Of a pool only the slices of the newest generation count: older ones are on their way out, and may be wrong. For a node
only its own slices count, and those of no node: the driver of another node cannot say what its GPUs are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Final, Protocol, TypeVar

from extender.cluster.objects.devices import DRIVER, ResourceSlice
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.objects.versions import NOTHING_MORE, Listing

Item_contra = TypeVar("Item_contra", contravariant=True)
_NO_NODE: Final = ""
"""Of a slice whose devices are not of one node."""


class Hearer(Protocol[Item_contra]):
    """A feature's cache of whole objects of DRA."""

    def replacing(self, objects: Sequence[Item_contra], listing: Listing) -> Iterator[None]:
        """Take these, and those that `listing` names, for all that exist, one after the other."""

    def changed(self, item: Item_contra) -> None:
        """Take this for the newest version of an object."""

    def deleted(self, item: Item_contra) -> None:
        """Take this for the last version of an object that is gone."""

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version of which no more can be told; `gone`: it is the object's last."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """What is kept of a slice: little, as a node may have hundreds of MIG devices. Equal texts are one object."""

    pool: str
    generation: int
    node: str
    gpus: Mapping[str, str | None]
    """Device → UUID of its GPU."""
    taints: Mapping[str, str]
    """UUID → what keeps pods off."""

    @classmethod
    def of(cls, item: ResourceSlice) -> _Slice:
        devices = item.spec.devices or ()
        return cls(
            item.spec.pool.name,
            item.spec.pool.generation,
            item.spec.node_name or _NO_NODE,
            {intern(device.name): device.gpu and intern(device.gpu) for device in devices},
            {device.gpu: device.taint for device in devices if device.gpu and device.taint},
        )


class ResourceSlices:
    """All slices of NVIDIA's driver.

    Args:
        touched: Is called with the pool of which something changed, and the nodes that publish or published it.

    """

    def __init__(self, touched: Callable[[str, set[str]], None]) -> None:
        self.hearers: list[Hearer[ResourceSlice]] = []
        """Features that keep whole slices; they hear of each change after this cache has."""
        self._touched = touched
        self._slices: dict[str, _Slice] = {}
        self._pools_on: dict[str, dict[str, set[str]]] = {}
        """Node → pool → names of its slices."""

    def replaced(self, objects: Sequence[ResourceSlice], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all slices that exist."""
        names = {metadata.name for metadata in (*(item.metadata for item in objects), *listing.unread)}
        for name in [name for name in self._slices if name not in names]:
            self._put(name, None)
        for item in objects:
            self._take(item)
        for hearer in self.hearers:
            for _ in hearer.replacing(objects, listing):
                pass

    def changed(self, item: ResourceSlice) -> None:
        """Take this for the newest version of a slice."""
        self._take(item)
        for hearer in self.hearers:
            hearer.changed(item)

    def deleted(self, item: ResourceSlice) -> None:
        """Take this for the last version of a slice that is gone."""
        self._put(item.metadata.name, None)
        for hearer in self.hearers:
            hearer.deleted(item)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read: what was known stays, unless it is the slice's last."""
        if gone:
            self._put(metadata.name, None)
        for hearer in self.hearers:
            hearer.unread(metadata, gone=gone)

    def gpu(self, node: str, pool: str, device: str) -> str | None:
        """Return the UUID of a device's GPU; `None` where no slice for the node says it."""
        newest = self._newest(node, pool)
        return next((resource_slice.gpus[device] for resource_slice in newest if device in resource_slice.gpus), None)

    def taints(self, node: str) -> dict[str, str]:
        """Return UUID → what keeps pods off, of the node's GPUs."""
        newest = (item for pool in self._pools_on.get(node, ()) for item in self._newest(node, pool) if item.node)
        return {gpu: taint for resource_slice in newest for gpu, taint in resource_slice.taints.items()}

    def has_pool(self, node: str, pool: str) -> bool:
        """Whether anything of a pool is published for the node."""
        return bool(self._names(node, pool))

    def has(self, node: str) -> bool:
        """Whether the node publishes devices."""
        return node in self._pools_on

    @property
    def nodes(self) -> Collection[str]:
        """All nodes that do."""
        return self._pools_on.keys()

    def _names(self, node: str, pool: str) -> set[str]:
        """Return the slices of a pool that may speak for the node: a driver of another node may name its pool alike."""
        return {name for where in (node, _NO_NODE) for name in self._pools_on.get(where, {}).get(pool, ())}

    def _newest(self, node: str, pool: str) -> Iterator[_Slice]:
        slices = [self._slices[name] for name in sorted(self._names(node, pool))]
        newest = max((resource_slice.generation for resource_slice in slices), default=0)
        return (resource_slice for resource_slice in slices if resource_slice.generation == newest)

    def _take(self, item: ResourceSlice) -> None:
        self._put(item.metadata.name, _Slice.of(item) if item.spec.driver == DRIVER else None)

    def _put(self, name: str, after: _Slice | None) -> None:
        before = self._slices.pop(name, None)
        if after is not None:
            self._slices[name] = after
        if before == after:
            return
        if before is not None:
            _discard(self._pools_on[before.node], before.pool, name)
            if not self._pools_on[before.node]:
                del self._pools_on[before.node]
        if after is not None:
            self._pools_on.setdefault(after.node, {}).setdefault(after.pool, set()).add(name)
        for pool in {version.pool for version in (before, after) if version}:
            self._touched(pool, {version.node for version in (before, after) if version and version.pool == pool})


def _discard(index: dict[str, set[str]], key: str, value: str) -> None:
    index[key].discard(value)
    if not index[key]:
        del index[key]
