"""A kubelet for fast tests: Registration and PodResources on real unix sockets, admission one pod at a time.

It re-implements what the specification of the device plugin says that a kubelet really does, so it is only as true as that;
the same scenarios run against the real kubelet in `tests/cluster`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio

from agent.kubelet.api import deviceplugin_pb2 as plugin
from agent.kubelet.api import podresources_pb2 as resources
from agent.kubelet.api.deviceplugin_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from agent.kubelet.api.podresources_pb2_grpc import PodResourcesListerServicer, add_PodResourcesListerServicer_to_server
from tests.kubelet.device_manager import AdmissionFailed, DeviceManager
from tests.kubelet.pods import Container, Kind, Phase, Pod
from topology.annotations.keys import GPU_RESOURCE, SHARE_RESOURCE

RESOURCES = (GPU_RESOURCE, SHARE_RESOURCE)
_HOLD_SECONDS = 0.05
"""Before a container that was held is tried again; the real one starts at seconds."""
_START_SECONDS = 30.0
"""Within which a pod that can start does, on the busiest machine."""
_LOCAL = [("grpc.use_local_subchannel_pool", 1)]


class PluginEndpoint:
    """One registered plugin, as the kubelet calls it."""

    def __init__(self, socket: Path, answered: Callable[[str, float], None]) -> None:
        self._answered = answered
        self.channel = grpc.aio.insecure_channel(f"unix:{socket}", _LOCAL)
        self._stub = DevicePluginStub(self.channel)
        self.options = plugin.DevicePluginOptions()

    async def connect(self) -> None:
        """Ask the plugin for its options; the real one waits up to 10 s for its socket."""
        self.options = await self._stub.GetDevicePluginOptions(plugin.Empty(), timeout=10, wait_for_ready=True)

    def stream(self) -> Any:
        """Open the stream of devices."""
        return self._stub.ListAndWatch(plugin.Empty())

    async def preferred(self, available: list[str], must: list[str], size: int) -> list[str]:
        asked = plugin.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = plugin.PreferredAllocationRequest(container_requests=[asked])
        answer: plugin.PreferredAllocationResponse = await self._asked(self._stub.GetPreferredAllocation, request)
        return list(answer.container_responses[0].deviceIDs)

    async def allocate(self, devices: list[str]) -> plugin.ContainerAllocateResponse:
        request = plugin.AllocateRequest(container_requests=[plugin.ContainerAllocateRequest(devices_ids=devices)])
        answer: plugin.AllocateResponse = await self._asked(self._stub.Allocate, request)
        return answer.container_responses[0]

    async def pre_start(self, devices: list[str]) -> None:
        await self._asked(self._stub.PreStartContainer, plugin.PreStartContainerRequest(devices_ids=devices))

    async def _asked(self, call: Any, request: Any) -> Any:
        began = time.monotonic()
        try:
            return await call(request)
        except grpc.aio.AioRpcError as error:
            raise AdmissionFailed(error.details() or error.code().name) from error
        finally:
            self._answered(call._method.decode().rpartition("/")[2], time.monotonic() - began)


class KubeletDouble:
    """One node's kubelet; `folder` survives it, as a node's disk does. Use it as an async context, or `start` and `kill` it."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.plugins, self.pod_resources = folder / "device-plugins", folder / "pod-resources"
        for made in (self.plugins, self.pod_resources):
            made.mkdir(parents=True, exist_ok=True)
        self._random = Random(seed)
        self.pods: list[Pod] = []
        """Those that the API server would list for this node."""
        self._managed: list[Pod] = []
        self.hang_lists = False
        self.refuse_lists = 0
        """So many calls of List are one too many in their second."""
        self.lists = 0
        self.calls: list[tuple[str, float]] = []
        """Each question to the plugin, and how many seconds its answer took."""
        self.registrations = 0
        self.takes_seconds = 0.0
        """From hearing a list of devices to offering them."""
        self.numa_nodes: dict[str, list[int]] = {}
        """Device → what the plugin said last that it is near."""
        self.returns_to_others = False
        """Whether, as since 1.37, the end of a plugin leaves the resource to another one that is connected."""
        self._servers: list[grpc.aio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._endpoints: dict[str, list[PluginEndpoint]] = {}
        """Resource → the plugins that are connected, the newest last."""
        self._queue = asyncio.Lock()

    @property
    def checkpoint(self) -> Path:
        """The device manager's file."""
        return self.plugins / "kubelet_internal_checkpoint"

    @property
    def allocatable(self) -> int:
        """How many whole GPUs the node would report."""
        return len(self.devices.healthy)

    @property
    def managers(self) -> tuple[DeviceManager, DeviceManager]:
        """Those of whole GPUs and of shares."""
        return self.devices, self.shares

    async def __aenter__(self) -> KubeletDouble:
        try:
            await self.start()
        except BaseException:
            await self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """Delete all sockets, read the checkpoint, serve, and admit the pods that are there."""
        for file in self.plugins.iterdir():
            if file.is_socket():
                file.unlink(missing_ok=True)  # a plugin that closes meanwhile deletes its own, as with a real kubelet
        self._managed = []
        self.devices = DeviceManager(self.checkpoint, self._random, self.active)
        of_shares = self.plugins / "kubelet_internal_checkpoint_of_shares"
        self.shares = DeviceManager(of_shares, self._random, self.active, SHARE_RESOURCE)
        pod_resources, registration = grpc.aio.server(), grpc.aio.server()
        self._servers += pod_resources, registration
        add_PodResourcesListerServicer_to_server(_PodResources(self), pod_resources)
        add_RegistrationServicer_to_server(_Registration(self), registration)
        socket = self.pod_resources / "kubelet.sock"
        socket.unlink(missing_ok=True)
        pod_resources.add_insecure_port(f"unix:{socket}")
        registration.add_insecure_port(f"unix:{self.plugins / 'kubelet.sock'}")
        await pod_resources.start()
        await registration.start()

    async def settle(self) -> None:
        """Take in the pods that were there before; until now nothing that is dead was freed."""
        await self._admit_all([pod for pod in self.pods if pod.active])
        self._all_known()

    async def kill(self) -> None:
        """End at once, if it runs at all; containers live on, and no plugin that was registering is taken in later."""
        await asyncio.gather(*(server.stop(None) for server in self._servers))
        self._servers.clear()  # gRPC's destructor needs the running loop
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for endpoint in chain.from_iterable(self._endpoints.values()):
            await endpoint.channel.close()
        self._endpoints.clear()

    async def run(self, *pods: Pod) -> None:
        """Have pods appear together, and wait until each is admitted or not."""
        self.pods += pods
        await self._admit_all(pods)

    async def started(self, *pods: Pod) -> None:
        """Wait until the pods run or have failed; raises `TimeoutError` when they do neither."""
        async with asyncio.timeout(_START_SECONDS):
            while any(pod.phase is Phase.PENDING for pod in pods):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.005)

    def delete(self, pod: Pod) -> None:
        """Have a pod and its containers gone."""
        pod.phase = Phase.SUCCEEDED if pod.active else pod.phase
        self.pods.remove(pod)
        self._managed = [other for other in self._managed if other is not pod]

    def holders(self) -> dict[str, str]:
        """Return device → pod UID of all active pods."""
        alive = {pod.uid for pod in self._managed if pod.active}
        held = ((uid, by) for manager in self.managers for uid, by in manager.held.items() if uid in alive)
        return {gpu: uid for uid, by in held for gpus, _ in by.values() for gpu in gpus}

    def active(self) -> Sequence[Pod]:
        """Return the pods as PodResources lists them since 1.34."""
        return [pod for pod in self._managed if pod.active]

    async def register(self, request: plugin.RegisterRequest) -> None:
        """Dial the plugin, and listen to it."""
        self.registrations += 1
        manager = next(each for each in self.managers if each.resource == request.resource_name)
        await self._spawn(self._dial(self.plugins / request.endpoint, manager))

    async def _dial(self, socket: Path, manager: DeviceManager) -> None:
        endpoint = PluginEndpoint(socket, lambda *call: self.calls.append(call))
        await endpoint.connect()
        self._endpoints.setdefault(manager.resource, []).append(endpoint)
        manager.endpoint = endpoint
        self._spawn(self._listen(endpoint, manager))

    async def _listen(self, endpoint: PluginEndpoint, manager: DeviceManager) -> None:
        try:
            async for response in endpoint.stream():
                self.numa_nodes |= {
                    device.ID: [each.ID for each in device.topology.nodes] for device in response.devices
                }
                await asyncio.sleep(self.takes_seconds)
                manager.listed({device.ID: device.health == "Healthy" for device in response.devices})
        except grpc.aio.AioRpcError:
            pass
        finally:
            await self._disconnected(endpoint, manager)

    async def _disconnected(self, endpoint: PluginEndpoint, manager: DeviceManager) -> None:
        connected = self._endpoints.pop(manager.resource, [])
        gone = connected[-1:]  # the flaw of 1.36: whoever's stream ends, it is the present plugin that is let go
        if self.returns_to_others:
            gone = [endpoint]
            connected.remove(endpoint)
            self._endpoints[manager.resource] = connected
        if self.returns_to_others and connected:
            manager.endpoint = self._random.choice(connected)  # and the list stays that of the one which is gone
        else:
            manager.disconnected()
        for each in gone:
            await each.channel.close()

    async def _admit_all(self, pods: Sequence[Pod]) -> None:
        async with self._queue:
            for pod in sorted(pods, key=lambda pod: pod.created):
                self._managed.append(pod)
                await self._admit(pod)
            self._all_known()

    def _all_known(self) -> None:
        for manager in self.managers:
            manager.sources_ready = True

    async def _admit(self, pod: Pod) -> None:
        try:
            for container in pod.ordered():
                for manager in self.managers:
                    await manager.admit(pod, container)
        except AdmissionFailed as error:
            pod.phase, pod.reason = Phase.FAILED, str(error)
            return
        if pod.phase is Phase.PENDING:
            self._spawn(self._start(pod))

    async def _start(self, pod: Pod) -> None:
        for container in pod.ordered():
            while not await self._may_start(pod, container):  # noqa: ASYNC110 - as the kubelet does
                await asyncio.sleep(_HOLD_SECONDS)
            pod.started[container.name] = answer = plugin.ContainerAllocateResponse()
            for manager in self.managers:
                if found := manager.held.get(pod.uid, {}).get(container.name):
                    answer.MergeFrom(found[1])
            if container.kind is Kind.INIT:
                await asyncio.sleep(0)
        pod.starts += 1
        pod.phase = Phase.RUNNING

    async def _may_start(self, pod: Pod, container: Container) -> bool:
        return all([await self._lets_start(manager, pod, container) for manager in self.managers])

    async def _lets_start(self, manager: DeviceManager, pod: Pod, container: Container) -> bool:
        if not (gpus := manager.devices(pod, container)):
            return True
        if manager.endpoint is None:
            return False
        if not manager.endpoint.options.pre_start_required:
            return True
        try:
            await manager.endpoint.pre_start(sorted(gpus))
        except AdmissionFailed as error:
            pod.reason = str(error)
            return False
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Registration(RegistrationServicer):
    def __init__(self, kubelet: KubeletDouble) -> None:
        self._kubelet = kubelet

    async def Register(self, request: plugin.RegisterRequest, context: Any) -> plugin.Empty:
        if request.version != "v1beta1" or request.resource_name not in RESOURCES:
            await context.abort(grpc.StatusCode.UNKNOWN, "unsupported version or resource")
        await self._kubelet.register(request)
        return plugin.Empty()


class _PodResources(PodResourcesListerServicer):
    def __init__(self, kubelet: KubeletDouble) -> None:
        self._kubelet = kubelet

    async def List(self, request: Any, context: Any) -> resources.ListPodResourcesResponse:
        self._kubelet.lists += 1
        if self._kubelet.refuse_lists:
            self._kubelet.refuse_lists -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        while self._kubelet.hang_lists:  # noqa: ASYNC110 - for as long as the test wants
            await asyncio.sleep(0.01)
        for manager in self._kubelet.managers:
            manager.free_the_dead()
        return resources.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._kubelet.active()])

    async def GetAllocatableResources(self, request: Any, context: Any) -> resources.AllocatableResourcesResponse:
        offered = [_devices(each, gpu) for each in self._kubelet.managers for gpu in sorted(each.healthy)]
        for item in offered:
            near = self._kubelet.numa_nodes.get(item.device_ids[0], ())
            item.topology.nodes.extend(resources.NUMANode(ID=numa_node) for numa_node in near)
        return resources.AllocatableResourcesResponse(devices=offered)

    def _pod(self, pod: Pod) -> resources.PodResources:
        return resources.PodResources(
            name=pod.name,
            namespace=pod.namespace,
            containers=[
                resources.ContainerResources(
                    name=container.name,
                    devices=[
                        _devices(each, gpu)
                        for each in self._kubelet.managers
                        for gpu in sorted(each.devices(pod, container))
                    ],
                )
                for container in pod.ordered()
                if container.kind is not Kind.INIT
            ],
        )


def _devices(manager: DeviceManager, gpu: str) -> resources.ContainerDevices:
    return resources.ContainerDevices(resource_name=manager.resource, device_ids=[gpu])
