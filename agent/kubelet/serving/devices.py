"""The lists of devices that the kubelet gets, one for each resource, and gets again whenever one has to be written down anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """One GPU, MIG slice or GiB of a GPU as the kubelet knows it."""

    uuid: str
    """Of a GiB that of its GPU and a number."""
    healthy: bool
    profile: str = ""
    """Of a slice, as in the name of its resource."""
    numa_node: int | None = None
    """Where the kubelet is to align by it."""
    nics: tuple[str, ...] = ()
    """The RDMA devices under its PCIe switch."""
    nodes: tuple[str, ...] = ()
    """Its own device nodes in the host's `/dev`."""
    share_gib: int = 0
    """How many GiB of a GPU pods may share; 0: it is never shared."""


class DeviceList:
    """What is to be told now; use it on one event loop."""

    def __init__(self) -> None:
        self._devices: tuple[PluginDevice, ...] = ()
        self._version = 0
        self._changed = asyncio.Event()

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """All of them, in order."""
        return self._devices

    @property
    def healthy(self) -> frozenset[str]:
        """Those that the kubelet may give away."""
        return frozenset(device.uuid for device in self._devices if device.healthy)

    def set(self, devices: Iterable[PluginDevice]) -> None:
        """Tell these from now on."""
        new = tuple(devices)
        if new != self._devices:
            self._devices = new
            self.repeat()

    def repeat(self) -> None:
        """Tell the same again: the kubelet writes down who holds what each time that it hears the list."""
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, version: int) -> tuple[int, tuple[PluginDevice, ...]]:
        """Wait for something newer than `version` (-1: take what there is) and return it with its version."""
        while self._version == version:
            await self._changed.wait()
        return self._version, self._devices


class DeviceLists:
    """All devices of the node, each in the list of its resource; use it on one event loop."""

    def __init__(self, resource_of: Callable[[PluginDevice], str]) -> None:
        """Begin without a list; `resource_of` says under which resource a device is offered."""
        self._resource_of = resource_of
        self._lists: dict[str, DeviceList] = {}
        self._grown = asyncio.Event()
        self.changes = 0
        """Grows whenever something else is to be told."""
        self.healthy: frozenset[str] = frozenset()
        """The devices that the kubelet may give away."""
        self.numa_nodes: frozenset[tuple[str, int]] = frozenset()
        """Those of them that have a NUMA node, with it."""

    @property
    def by_resource(self) -> Mapping[str, DeviceList]:
        """Resource → its devices; a resource stays when its last device is gone."""
        return self._lists

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """Those of all resources."""
        return tuple(device for served in self._lists.values() for device in served.devices)

    def set(self, devices: Iterable[PluginDevice]) -> None:
        """Tell these from now on."""
        sorted_out: dict[str, list[PluginDevice]] = {resource: [] for resource in self._lists}
        for device in devices:
            sorted_out.setdefault(self._resource_of(device), []).append(device)
        for resource, mine in sorted_out.items():
            if resource not in self._lists:
                self._lists[resource] = DeviceList()
                self._grown.set()
            self._lists[resource].set(mine)
        self.changes += 1
        healthy = [device for device in self.devices if device.healthy]
        self.healthy = frozenset(device.uuid for device in healthy)
        self.numa_nodes = frozenset(
            (device.uuid, device.numa_node) for device in healthy if device.numa_node is not None
        )

    def repeat(self) -> None:
        """Tell all the same again."""
        for served in self._lists.values():
            served.repeat()

    async def grown(self) -> None:
        """Wait for a resource that was not there at the last call."""
        await self._grown.wait()
        self._grown.clear()

    def elsewhere(self, resource: str) -> frozenset[str]:
        """Return the devices of all other resources."""
        others = (served for name, served in self._lists.items() if name != resource)
        return frozenset(device.uuid for served in others for device in served.devices)
