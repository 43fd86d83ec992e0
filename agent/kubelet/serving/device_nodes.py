"""The driver's device nodes of a container, for runtimes that do not take them from CDI specs.

The kubelet has a runtime add them to the container's own devices. What a hook alone adds, the next reload of systemd takes away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from topology.node.model import NodeTopology
from topology.node.slices import Slice

COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""What each container with a GPU has of the driver, where it is there."""
MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
"""The driver's numbers for access to MIG devices, a line each: `gpu0/gi1/access 12`."""
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DeviceNodes:
    """The device nodes in `folder`, which is the host's `/dev` as it is seen here."""

    folder: Path
    of_device: Mapping[str, tuple[str, ...]]
    """GPU or slice → names of its own nodes."""

    def present(self, devices: tuple[str, ...]) -> Iterator[str]:
        """Yield the names of the nodes for these devices, once each, that are there."""
        own = (name for device in devices for name in self.of_device.get(device, ()))
        yield from filter(self.has, dict.fromkeys((*COMMON, *own)))

    def has(self, name: str) -> bool:
        """Return whether there is such a node."""
        return os.path.exists(self.folder / name)  # noqa: PTH110 - where this may not be seen, `Path.exists` raises


def own_nodes(
    topology: NodeTopology, minors: Mapping[str, int], numbers: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return each GPU and slice → the names of its device nodes; one without a number has none.

    Args:
        topology: The node's.
        minors: GPU → the number of its device node.
        numbers: As `mig_numbers` reads them.

    """
    of_gpu = {gpu.index: minors[gpu.uuid] for gpu in topology.gpus if gpu.uuid in minors}
    nodes: dict[str, tuple[str, ...]] = {
        gpu.uuid: (f"nvidia{of_gpu[gpu.index]}",) for gpu in topology.gpus if gpu.index in of_gpu
    }
    for part in topology.slices:
        if part.gpu in of_gpu and (access := _access(part, of_gpu[part.gpu], numbers)):
            nodes[part.uuid] = (f"nvidia{of_gpu[part.gpu]}", *access)
    return nodes


def mig_numbers(file: Path = MIG_MINORS) -> dict[str, int]:
    """Read which access to MIG devices has which number; none where the driver does not say."""
    try:
        with file.open(encoding="ascii") as opened:
            lines = opened.read(_MAX_BYTES).splitlines()
    except (OSError, ValueError):
        return {}
    words = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}


def _access(part: Slice, minor: int, numbers: Mapping[str, int]) -> tuple[str, ...]:
    gpu_instance = f"gpu{minor}/gi{part.gpu_instance}"
    accesses = (f"{gpu_instance}/access", f"{gpu_instance}/ci{part.compute_instance}/access")
    if not all(access in numbers for access in accesses):
        return ()
    return tuple(f"nvidia-caps/nvidia-cap{numbers[access]}" for access in accesses)
