"""The kubelet's PodResources service: which pod's container holds which device, and which devices can be had.

Calls are made one at a time, because `PodArrivals` reads meaning into their order. The kubelet answers at most 100 calls
a second, of all callers together, and refuses the others. So a refused call is made again, as long as there is time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from agent.errors import KubeletUnavailable
from agent.kubelet.api.podresources_pb2 import (
    AllocatableResourcesRequest,
    ContainerResources,
    ListPodResourcesRequest,
    PodResources,
)
from agent.kubelet.api.podresources_pb2_grpc import PodResourcesListerStub
from agent.plugin.devices.mig import is_ours
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod
from topology.node.offers import DRA_DRIVER

_RETRY_SECONDS: Final = 0.012
_MAX_BYTES = 16 * 1024 * 1024
"""The kubelet's own limit of an answer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Allocatable:
    """What a kubelet may give to containers."""

    devices: Mapping[str, frozenset[str]]
    """Healthy ones of each resource."""
    cpus: frozenset[int]
    """That a container can have for itself; none where the CPU manager is not static."""
    numa_nodes: frozenset[tuple[str, int]]
    """Healthy devices of ours, each with a NUMA node that it is near."""


class PodResourcesClient:
    """One node's PodResources socket; use it on one event loop."""

    def __init__(self, socket: Path, resource: str, named: Callable[[str], str] = str) -> None:
        """Ask at this socket; `named` returns the name that a device has here."""
        self._socket = socket
        self._named = named
        self._resource = resource
        self._turn = asyncio.Lock()
        self._channel: grpc.aio.Channel | None = None

    async def pods(self, timeout_seconds: float) -> tuple[ListedPod, ...]:
        """Return the active pods of the node with what they hold of our resources; raises `KubeletUnavailable`."""
        answer = await self._ask(lambda stub: stub.List(ListPodResourcesRequest()), timeout_seconds)
        return tuple(self._pod(pod) for pod in answer.pod_resources)

    async def allocatable(self, timeout_seconds: float) -> Allocatable:
        """Return what the kubelet has to give, in use or not; raises `KubeletUnavailable`."""
        answer = await self._ask(
            lambda stub: stub.GetAllocatableResources(AllocatableResourcesRequest()), timeout_seconds
        )
        ids_of: dict[str, set[str]] = {}
        near = set[tuple[str, int]]()
        for item in answer.devices:
            names = [*map(self._named, item.device_ids)]
            ids_of.setdefault(item.resource_name, set()).update(names)
            if is_ours(item.resource_name, self._resource):
                near.update((name, node.ID) for name in names for node in item.topology.nodes)
        devices = {resource: frozenset(ids) for resource, ids in ids_of.items()}
        return Allocatable(devices, frozenset(answer.cpu_ids), frozenset(near))

    async def close(self) -> None:
        """Let go of the socket; whoever waits for an answer gets none."""
        if self._channel:
            await self._channel.close()
            self._channel = None

    async def _ask(self, call: Callable[[PodResourcesListerStub], Awaitable[T]], timeout_seconds: float) -> T:
        try:
            async with asyncio.timeout(timeout_seconds), self._turn:
                if not self._socket.exists():  # to dial all the same costs more than a look
                    await self.close()
                    raise KubeletUnavailable(f"PodResources: there is no socket {self._socket}")
                while True:
                    try:
                        return await call(self._stub())
                    except grpc.aio.AioRpcError as error:
                        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                            await self.close()  # it would wait longer and longer before it tries again
                            raise
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError as error:
            raise KubeletUnavailable(f"PodResources did not answer within {timeout_seconds:g} s") from error
        except grpc.aio.AioRpcError as error:
            raise KubeletUnavailable(f"PodResources: {error.details() or error.code().name}") from error
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            # gRPC says so of a call whose channel is closed, and a task group would take its caller for ended
            raise KubeletUnavailable("PodResources: the channel was closed") from error

    def _stub(self) -> PodResourcesListerStub:
        if self._channel is None:
            options = [("grpc.max_receive_message_length", _MAX_BYTES), ("grpc.use_local_subchannel_pool", 1)]
            self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options)
        return PodResourcesListerStub(self._channel)

    def _pod(self, pod: PodResources) -> ListedPod:
        return ListedPod(pod.namespace, pod.name, tuple(self._container(item) for item in pod.containers))

    def _container(self, container: ContainerResources) -> ListedContainer:
        held, elsewhere = set[str](), list[str]()
        for item in container.devices:
            if is_ours(item.resource_name, self._resource):
                held.update(map(self._named, item.device_ids))
            else:
                elsewhere.extend(map(self._named, item.device_ids))
        claimed = frozenset(
            (item.claim_name, device.pool_name, device.device_name)
            for item in container.dynamic_resources
            for device in item.claim_resources
            if device.driver_name == DRA_DRIVER
        )
        cpus = frozenset(container.cpu_ids)
        return ListedContainer(container.name, frozenset(held), tuple(sorted(elsewhere)), cpus, claimed)
