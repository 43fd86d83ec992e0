"""The kubelet's device manager for one resource, in the order and with the flaws of Kubernetes 1.36's.

Sources: `pkg/kubelet/cm/devicemanager/manager.go` of Kubernetes 1.36.2 (read, not copied) and what a real kubelet was seen to do.
What Go leaves to the order of its maps is left to `random` here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Protocol

from agent.kubelet.api.deviceplugin_pb2 import ContainerAllocateResponse, DevicePluginOptions
from tests.kubelet.pods import Container, Kind, Pod
from topology.annotations.keys import GPU_RESOURCE


class AdmissionFailed(Exception):
    """The pod fails with `UnexpectedAdmissionError` and this message."""


class Endpoint(Protocol):
    """A registered plugin; each call raises `AdmissionFailed` when the plugin does."""

    options: DevicePluginOptions

    async def preferred(self, available: list[str], must: list[str], size: int) -> list[str]: ...
    async def allocate(self, devices: list[str]) -> ContainerAllocateResponse: ...
    async def pre_start(self, devices: list[str]) -> None: ...


class DeviceManager:
    """Knows who has which device; everything but the checkpoint dies with it."""

    def __init__(
        self, checkpoint: Path, random: Random, active: Callable[[], Iterable[Pod]], resource: str = GPU_RESOURCE
    ) -> None:
        self.resource = resource
        self._checkpoint = checkpoint
        self._random = random
        self._active = active
        self.endpoint: Endpoint | None = None
        self.registered = False
        """Whether the resource was ever heard of, by this kubelet or one before it."""
        self.healthy: set[str] = set()
        self.unhealthy: set[str] = set()
        self.held: dict[str, dict[str, tuple[frozenset[str], ContainerAllocateResponse]]] = {}
        """Pod UID → container → its devices and what the plugin answered."""
        self._allocated: set[str] = set()
        self._reusable: dict[str, set[str]] = {}
        self.sources_ready = False
        self.obeys = True
        """Whether it takes what the plugin prefers; not what a kubelet does, but what it may do."""
        self._load()

    def listed(self, devices: dict[str, bool]) -> None:
        """Take in the plugin's list: device → whether it is healthy."""
        self.registered = True
        self.healthy = {device for device, well in devices.items() if well}
        self.unhealthy = devices.keys() - self.healthy
        self.write()

    def disconnected(self) -> None:
        """Count every device as sick, and go on knowing the plugin."""
        self.unhealthy |= self.healthy
        self.healthy = set()

    def free_the_dead(self) -> None:
        """Drop what pods hold that are not active any more; only in memory."""
        alive = {pod.uid for pod in self._active()}
        if self.sources_ready and self.held.keys() - alive:
            self.held = {uid: held for uid, held in self.held.items() if uid in alive}
            self._allocated = self._all_held()

    async def admit(self, pod: Pod, container: Container) -> None:
        """Find devices for one container; raises `AdmissionFailed`."""
        self._reusable = {pod.uid: self._reusable.get(pod.uid, set())}
        pool = self._reusable[pod.uid]
        if container.count(self.resource) and self.registered:
            self.free_the_dead()
            chosen = await self._choose(pod, container, pool)
            if chosen:
                await self._allocate(pod, container, chosen)
        mine = self.devices(pod, container)
        if container.kind is Kind.INIT:
            pool |= mine
        else:
            pool -= mine

    def devices(self, pod: Pod, container: Container) -> frozenset[str]:
        """Return what one container holds."""
        return self.held.get(pod.uid, {}).get(container.name, (frozenset(), None))[0]

    def write(self) -> None:
        """Write the checkpoint."""
        held = {
            uid: {name: [sorted(devices), answer.SerializeToString().hex()] for name, (devices, answer) in by.items()}
            for uid, by in self.held.items()
        }
        self._checkpoint.write_text(json.dumps({"registered": self.registered, "held": held}))

    async def _choose(self, pod: Pod, container: Container, pool: set[str]) -> set[str]:
        already, count = self.devices(pod, container), container.count(self.resource)
        if not self.healthy:
            raise AdmissionFailed("no healthy devices present; cannot allocate unhealthy devices")
        if not already <= self.healthy:
            raise AdmissionFailed("previously allocated devices are no longer healthy")
        if already:
            return set()
        chosen = set(self._shuffled(pool)[:count])
        self._allocated |= chosen
        needed = count - len(chosen)
        if not needed:
            return chosen
        available = self.healthy - self._allocated
        if len(available) < needed:
            message = f"requested number of devices unavailable. Requested: {needed}, Available: {len(available)}"
            raise AdmissionFailed(message)
        preferred = await self._preferred(available | chosen, chosen, count)
        for candidates in (preferred & available, available):
            chosen |= set(self._shuffled(candidates - chosen)[: count - len(chosen)])
        self._allocated |= chosen
        return chosen

    async def _preferred(self, available: set[str], must: set[str], size: int) -> set[str]:
        if not self.endpoint or not self.endpoint.options.get_preferred_allocation_available:
            return set()
        preferred = set(await self.endpoint.preferred(self._shuffled(available), self._shuffled(must), size))
        return preferred if self.obeys else set()

    async def _allocate(self, pod: Pod, container: Container, chosen: set[str]) -> None:
        try:
            if self.endpoint is None:
                raise AdmissionFailed("unknown device plugin")
            answer = await self.endpoint.allocate(self._shuffled(chosen))
        except AdmissionFailed:
            self._allocated = self._all_held()
            raise
        self.held.setdefault(pod.uid, {})[container.name] = (frozenset(chosen), answer)
        self.write()

    def _all_held(self) -> set[str]:
        return {device for by in self.held.values() for devices, _ in by.values() for device in devices}

    def _shuffled(self, devices: Iterable[str]) -> list[str]:
        listed = sorted(devices)
        self._random.shuffle(listed)
        return listed

    def _load(self) -> None:
        if not self._checkpoint.exists():
            return
        document = json.loads(self._checkpoint.read_text())
        self.registered = document["registered"]
        self.held = {
            uid: {
                name: (frozenset(devices), ContainerAllocateResponse.FromString(bytes.fromhex(answer)))
                for name, (devices, answer) in by.items()
            }
            for uid, by in document["held"].items()
        }
        self._allocated = self._all_held()
