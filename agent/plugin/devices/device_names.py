"""The UUIDs of devices that a device plugin names in its own way.

Google's plugin (GKE) names a GPU after its device node, `nvidia0`, a MIG partition `nvidia0/gi1`, and a replica `nvidia0/vgpu3`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.plugin.devices.offers import REPLICA
from topology.node.model import NodeTopology

_REPLICA_OF_GOOGLE = "/vgpu"


def uuids_by_name(topology: NodeTopology, minors: Mapping[str, int]) -> dict[str, str]:
    """Return the name of each GPU and MIG partition in Google's plugin → its UUID.

    A partition with several compute instances is left out: its name does not say which of them a container holds.

    Args:
        topology: The node's.
        minors: UUID of a GPU → the number of its device node.

    """
    nodes = {gpu.index: f"nvidia{minors[gpu.uuid]}" for gpu in topology.gpus if gpu.uuid in minors}
    uuids = {nodes[gpu.index]: gpu.uuid for gpu in topology.gpus if gpu.index in nodes}
    partitions: dict[str, list[str]] = {}
    for part in topology.slices:
        if part.gpu in nodes:
            partitions.setdefault(f"{nodes[part.gpu]}/gi{part.gpu_instance}", []).append(part.uuid)
    return uuids | {name: parts[0] for name, parts in partitions.items() if len(parts) == 1}


def with_uuid(device: str, uuids: Mapping[str, str]) -> str:
    """Return a device of a plugin by its UUID, as NVIDIA's plugin would name it; a name that is not known stays.

    >>> with_uuid("nvidia0/vgpu3", {"nvidia0": "GPU-a"}), with_uuid("nvidia0", {"nvidia0": "GPU-a"}), with_uuid("nvidia1", {})
    ('GPU-a::3', 'GPU-a', 'nvidia1')
    """
    name, is_replica, number = device.partition(_REPLICA_OF_GOOGLE)
    uuid = uuids.get(name)
    if uuid is None:
        return device
    return f"{uuid}{REPLICA}{number}" if is_replica else uuid
