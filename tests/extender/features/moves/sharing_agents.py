"""Agents of nodes that share GPUs, some of which are cut into slices. They report later what the kubelet has given out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.pod_life import has_ended
from tests.extender.mig import cut
from tests.extender.world import World
from topology.annotations import keys
from topology.annotations.codec import digest, encode_topology
from topology.annotations.records import Holder, Observed, Sharer, decode_placement, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, MigStrategy, Mode, NodeGpuStatus

SHARE_GIB: Final = 78
"""Of each GPU."""
PROFILE: Final = "1g.10gb"
LAYOUT: Final = {6: (PROFILE,) * 4, 7: (PROFILE,) * 4}
WHOLE_GPUS: Final = 6
SLICES: Final = 8


def gib(count: int) -> dict[str, str]:
    """Return the limits of a container with so many GiB of a GPU."""
    return {keys.SHARE_RESOURCE: str(count)}


def slices(count: int) -> dict[str, str]:
    """Return the limits of a container with so many slices."""
    return {keys.MIG_PREFIX + PROFILE: str(count)}


@dataclass(slots=True)
class SharingAgents:
    """Six GPUs of each node may be shared, and two are cut into slices."""

    random: Random
    chance: float = 0.5
    """That the agent of a node reports in a round."""
    chance_to_vanish: float = 0.0
    """That a pod is deleted before its status says that its containers have stopped."""
    _seen: dict[str, str] = field(default_factory=dict)
    """Node → the last report, as it was made."""
    _looks: int = 0

    def start(self, world: World, nodes: Iterable[str]) -> None:
        """Publish what each node has."""
        for name in nodes:
            topology = cut(name, LAYOUT)
            text = encode_topology(topology)
            gpus = tuple(GpuStatus(gpu.uuid, share_gib=None if gpu.mig_enabled else SHARE_GIB) for gpu in topology.gpus)
            sharing = Sharing(WHOLE_GPUS, Limits.CGROUP)
            plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=sharing, mig=MigStrategy.MIXED)
            status = encode_status(NodeGpuStatus(1, gpus, device_plugin=plugin))
            written = {keys.TOPOLOGY: text, keys.TOPOLOGY_DIGEST: digest(text), keys.STATUS: status}
            world.annotate_node(name, **{key.partition("/")[2]: value for key, value in written.items()})
            self._seen[name] = encode_observed(Observed({}))

    def report(self, world: World) -> None:
        """Write on some of the nodes what was looked at before, and look again."""
        for name, seen in self._seen.items():
            if self.random.random() < self.chance:
                world.annotate_node(name, observed=seen)
                self._looks += 1
                self._seen[name] = _look(world, name, self._looks)

    def only_they_tell(self) -> bool:
        """Whether nothing but a report proves that the containers of the next pod that ends have stopped."""
        return self.random.random() < self.chance_to_vanish


def _look(world: World, node: str, number: int) -> str:
    version = world.store.get(NODES, "", node)["metadata"]["resourceVersion"]
    gpus, shared = dict[str, Holder](), dict[str, list[Sharer]]()
    for pod in world.store.list(PODS).items:
        text = (pod["metadata"].get("annotations") or {}).get(keys.PLACEMENT)
        if pod["spec"].get("nodeName") != node or text is None or has_ended(pod):
            continue
        record, name = decode_placement(text), pod["metadata"]["name"]
        for container, devices in record.containers.items():
            for device in devices:
                gpus.setdefault(device, Holder("default", name, container))
                if record.memory_gib:
                    shared.setdefault(device, []).append(
                        Sharer("default", name, container, record.memory_gib[container])
                    )
    of_gpu = {gpu: tuple(of) for gpu, of in shared.items()}
    return encode_observed(Observed(gpus, number, node_version=version, shared=of_gpu))
