"""The list of devices that the kubelet gets, and gets again whenever it changes or has to be written down anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the kubelet knows it."""

    uuid: str
    healthy: bool
    numa_node: int | None = None
    """Where the kubelet is to align by it."""
    nics: tuple[str, ...] = ()
    """The RDMA devices under its PCIe switch."""


class DeviceList:
    """What is to be told now; use it on one event loop."""

    def __init__(self) -> None:
        self._devices: tuple[Device, ...] = ()
        self._version = 0
        self._changed = asyncio.Event()

    @property
    def devices(self) -> tuple[Device, ...]:
        """All GPUs of the node, in order."""
        return self._devices

    @property
    def healthy(self) -> frozenset[str]:
        """Those that the kubelet may give away."""
        return frozenset(device.uuid for device in self._devices if device.healthy)

    def set(self, devices: Iterable[Device]) -> None:
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

    async def after(self, version: int) -> tuple[int, tuple[Device, ...]]:
        """Wait for something newer than `version` (-1: take what there is) and return it with its version."""
        while self._version == version:
            await self._changed.wait()
        return self._version, self._devices
