"""What the kubelet is told of the node's GPUs: each whole, and in shares of one GiB where it may be shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agent.kubelet.serving.devices import DeviceLists, PluginDevice
from agent.plugin.devices.offers import REPLICA, Sliced, gpu_of
from agent.plugin.devices.share_devices import share_devices
from agent.plugin.pods.listed_pods import ListedPod, PodPlan, listed_gpus
from agent.plugin.withdrawal import PublishedDevices, withdrawn
from topology.node.silicon import NO_SLICES, Silicon


class Offering:
    """Keeps the lists of devices in step with what is found, what containers hold and what the node says of that."""

    def __init__(self, lists: DeviceLists, plans: Callable[[], Iterable[PodPlan]]) -> None:
        self.lists = lists
        self._plans = plans
        self._aligns: bool | None = None
        self._pods: Sequence[ListedPod] = ()
        self._told = PublishedDevices()
        self._basis: tuple[object, ...] = ()
        self.found: tuple[PluginDevice, ...] = ()
        """The GPUs and slices, whether or not they are offered."""
        self.silicon = NO_SLICES
        """Which devices are of one GPU, also slices that are gone while containers hold them."""

    @property
    def shareable(self) -> Mapping[str, int]:
        """GPU → GiB of it that may be shared."""
        return {device.uuid: device.share_gib for device in self.found if device.share_gib}

    def take(self, devices: Iterable[PluginDevice]) -> None:
        """Offer these GPUs and slices."""
        self.found = tuple(devices)
        self._tell()

    def cut(self, sliced: Sliced) -> None:
        """Take in which GPUs have MIG on, and their slices."""
        slices = {device: gpu for gpu, of in sliced.items() for device in of}
        has_nameless = not all(sliced.values())
        self.silicon = Silicon(slices, is_partial=has_nameless).remembering(
            {**self.silicon.gone, **self.silicon.slices}
        )

    def align(self, *, aligns: bool) -> None:
        """Tell NUMA nodes where the kubelet aligns by them; before this is known nothing is told."""
        self._aligns = aligns
        self._tell()

    def saw(self, pods: Sequence[ListedPod]) -> None:
        """Take in who holds what."""
        self._pods = pods
        if self.silicon.gone:
            held = set(map(gpu_of, listed_gpus(pods)))
            gone = {device: gpu for device, gpu in self.silicon.gone.items() if device in held}
            self.silicon = replace(self.silicon, gone=gone)
        self._tell()

    def about_to_publish(self, devices: PublishedDevices) -> None:
        """Take in that the node is being told this, and may say it or what it said before: what neither says is given back."""
        self.published(self._told.both(devices))

    def published(self, devices: PublishedDevices) -> None:
        """Take in that the node says this now."""
        self._told = devices
        self._tell()

    def _tell(self) -> None:
        if self._aligns is None:
            return
        held = listed_gpus(self._pods)
        gone = withdrawn(self.shareable, self._pods, self._plans(), self._told)
        shares = frozenset(device for device in held if REPLICA in device)
        basis = (self.found, self._aligns, gone, shares)
        if basis != self._basis:  # a node has more than a thousand share devices, and most looks find nothing new
            self._basis = basis
            self.lists.set([*self._whole(gone), *self._shares(gone, shares)])

    def _whole(self, gone: frozenset[str]) -> Iterator[PluginDevice]:
        for device in self.found:
            numa_node = device.numa_node if self._aligns else None
            yield replace(device, healthy=device.healthy and device.uuid not in gone, numa_node=numa_node)

    def _shares(self, gone: frozenset[str], held: frozenset[str]) -> Iterator[PluginDevice]:
        """Yield the share devices, those too that are held and would not be offered any more; they have no NUMA node."""
        left_over: dict[str, set[str]] = {}
        for device in held:
            left_over.setdefault(gpu_of(device), set()).add(device)
        for gpu in self.found:
            offered = share_devices(gpu.uuid, gpu.share_gib)
            more = sorted(left_over.get(gpu.uuid, set()).difference(offered))
            for device in (*offered, *more):
                yield PluginDevice(device, gpu.healthy and device not in gone)
