"""The device plugin's gRPC service: messages in, `Admission` and `DeviceList` asked, messages out; nothing is decided here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
import grpc.aio

from agent.kubelet.api import deviceplugin_pb2 as api
from agent.kubelet.api.deviceplugin_pb2_grpc import DevicePluginServicer
from agent.kubelet.serving.admission import Admission
from agent.kubelet.serving.device_nodes import DeviceNodes
from agent.kubelet.serving.devices import DeviceList, PluginDevice
from agent.limits.limiter import Limiter
from agent.limits.mps import Mount
from agent.limits.share import Share
from agent.plugin.choice.choose import Ask, Grant
from agent.plugin.choice.forms import DeviceForm
from agent.plugin.devices.offers import gpu_of
from topology.node.nics import nics_of

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
NCCL_DEVICES = "NCCL_IB_HCA"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
_IMEX_FOLDER = "nvidia-caps-imex-channels/channel"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"


@dataclass(frozen=True, slots=True)
class Injection:
    """How the container runtime hears of a container's GPUs."""

    env: bool
    """As `NVIDIA_VISIBLE_DEVICES`."""
    cdi_kind: str | None
    """As CDI names of this kind, `vendor/class`."""
    nics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """GPU → the RDMA devices of which NCCL is told with it; none: NCCL looks for itself."""
    limiter: Limiter | None = None
    """What holds containers to their shares."""
    nodes: DeviceNodes | None = None
    """The host's device nodes; `None`: none is passed on."""
    passes_nodes: bool = False
    """Whether those of the driver and of the GPUs are passed on; those of IMEX channels are, too, where no CDI spec has them."""
    imex_channels: tuple[int, ...] = ()
    features: tuple[str, ...] = ()
    """What a container gets beside the GPUs, as NVIDIA's runtime calls it in `NVIDIA_GDS` and the like: `gds`."""
    cdi_devices: frozenset[str] = frozenset()
    """What CDI specs name, `nvidia.com/gds=all`; of this a container gets beside its GPUs what is switched on."""

    def of(self, devices: tuple[str, ...], compute_percent: int | None = None) -> api.ContainerAllocateResponse:
        """Return the answer for exactly the GPUs that these devices are, or are shares of."""
        gpus = tuple(dict.fromkeys(map(gpu_of, devices)))
        envs = {VISIBLE_DEVICES: ",".join(gpus)} if self.env else {}
        near = [self.nics.get(gpu, ()) for gpu in gpus]
        if all(near):  # NCCL would never use another device for a GPU that has none near
            envs[NCCL_DEVICES] = f"={','.join(nics_of(near))}"  # `=`: by their whole names, not by how these begin
        envs |= {f"NVIDIA_{feature.upper()}": "enabled" for feature in self.features}
        channels = self._channels()
        if channels and self.env:
            envs[IMEX_CHANNELS] = ",".join(map(str, channels))
        mounts: tuple[Mount, ...] = ()
        if self.limiter and gpus != devices:
            share = Share("", "", "", "", gpus[0], len(devices), compute_percent)
            envs |= self.limiter.environment(share)
            mounts = self.limiter.mounts(share)
        return api.ContainerAllocateResponse(
            envs=envs,
            mounts=[
                api.Mount(host_path=str(mount.host_path), container_path=mount.container_path, read_only=False)
                for mount in mounts
            ],
            devices=[
                api.DeviceSpec(container_path=f"/dev/{name}", host_path=f"/dev/{name}", permissions="rw")
                for name in self._nodes(gpus, channels)
            ],
            cdi_devices=[api.CDIDevice(name=name) for name in self._cdi_names(gpus, channels)],
        )

    def _channels(self) -> tuple[int, ...]:
        """Return the IMEX channels that the node has."""
        return tuple(
            channel for channel in self.imex_channels if self.nodes and self.nodes.has(f"{_IMEX_FOLDER}{channel}")
        )

    def _nodes(self, gpus: tuple[str, ...], channels: tuple[int, ...]) -> Iterator[str]:
        if self.nodes and self.passes_nodes:
            yield from self.nodes.present(gpus)
        for channel in channels if self.passes_nodes or self.cdi_kind else ():
            if self._cdi_name("imex-channel", str(channel)) not in self.cdi_devices:
                yield f"{_IMEX_FOLDER}{channel}"

    def _cdi_names(self, gpus: tuple[str, ...], channels: tuple[int, ...]) -> Iterator[str]:
        if self.cdi_kind:
            yield from (f"{self.cdi_kind}={gpu}" for gpu in gpus)
            others = [self._cdi_name("imex-channel", str(channel)) for channel in channels]
            others += [self._cdi_name(feature, "all") for feature in self.features]
            yield from (name for name in others if name in self.cdi_devices)

    def _cdi_name(self, kind: str, name: str) -> str:
        return f"{(self.cdi_kind or '').partition('/')[0]}/{kind}={name}"


def _told(device: PluginDevice) -> api.Device:
    """Return what the kubelet hears of a device."""
    near = () if device.numa_node is None else (api.NUMANode(ID=device.numa_node),)
    topology = api.TopologyInfo(nodes=near) if near else None
    return api.Device(ID=device.uuid, health=HEALTHY if device.healthy else UNHEALTHY, topology=topology)


class DevicePluginService(DevicePluginServicer):
    """Serves one registration; `listed` and `ended` say how far its stream of devices has come."""

    def __init__(
        self,
        devices: DeviceList,
        admission: Admission,
        injection: Callable[[], Injection],
        form: DeviceForm,
    ) -> None:
        """Serve these devices, each of which is of this form."""
        self._devices = devices
        self._admission = admission
        self._injection = injection
        self._form = form
        self.listed = asyncio.Event()
        """The kubelet has the first list."""
        self.ended = asyncio.Event()
        """The kubelet has let go of us."""

    async def GetDevicePluginOptions(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        """Ask to be asked."""
        return api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: api.Empty, context: Context) -> AsyncIterator[api.ListAndWatchResponse]:
        """Tell the devices."""
        version = -1
        try:
            while True:
                version, devices = await self._devices.after(version)
                yield api.ListAndWatchResponse(devices=map(_told, devices))
                self.listed.set()
        finally:
            self.ended.set()

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        """Say which GPUs to take."""
        response = api.PreferredAllocationResponse()
        for container in request.container_requests:
            ask = Ask(
                frozenset(container.available_deviceIDs),
                frozenset(container.must_include_deviceIDs),
                container.allocation_size,
            )
            answer = await self._admission.prefer(ask, self._form)
            if not isinstance(answer, Grant):
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, answer.reason)
            response.container_responses.add(deviceIDs=answer.gpus)
        return response

    async def Allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        """Hand out exactly the GPUs that the kubelet took, or turn the pod away."""
        response = api.AllocateResponse()
        for container in request.container_requests:
            answer = await self._admission.allocate(frozenset(container.devices_ids), self._form)
            if not isinstance(answer, Grant):
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, answer.reason)
            response.container_responses.append(self._injection().of(answer.gpus, answer.compute_percent))
        return response

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        """Let the container start, or hold it back: the kubelet asks again."""
        reason = await self._admission.may_start(frozenset(request.devices_ids), self._form)
        if reason is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"on hold: {reason}")
        return api.PreStartContainerResponse()
