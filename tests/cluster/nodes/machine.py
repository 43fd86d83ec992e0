"""The machine that a node pretends to be: what NVML, sysfs and the kubelet find there.

The GPUs are a description of `tests/nvml`, with UUIDs of the node's own; the files under `/sys` follow from what NVML says.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import combinations
from pathlib import Path

from agent.gpus.discovery import discover
from agent.gpus.host import Host
from agent.gpus.nvml.reader import read_nvml
from tests.nvml.library import SONAME, FakeNvml, machine, missing_in
from topology.node.model import NodeTopology

_UUID = re.compile(r"^(gpu \S+ uuid )GPU-[0-9a-f]{8}", re.MULTILINE)

_MIG_INSTANCES = 15
"""Numbers that GPU and compute instances may have, a few more than there are."""


class Machine:
    """A description from `tests/nvml/machines`, copied into the new `folder` for one node, beside the library that plays it.

    The copy may be changed while programs look at it; each `nvmlInit` reads it anew.
    """

    def __init__(self, node: str, description: str, folder: Path, library: FakeNvml) -> None:
        folder.mkdir()
        self.description = folder / "machine.nvml"
        self.xids = folder / "machine.nvml.xids"
        self._device = folder / "machine.nvml.device"
        self._device.touch()
        self._library = library
        own = sha256(node.encode()).hexdigest()[:8]
        text, replaced = _UUID.subn(rf"\g<1>GPU-{own}", machine(description).read_text())
        assert replaced, f"{description} gives its GPUs no UUIDs"
        self._text = text
        self.repair()
        shutil.copy(library.path(missing_in(self.description)) / SONAME, folder)
        self.topology: NodeTopology = self._seen()

    @property
    def environment(self) -> dict[str, str]:
        """The variables under which a program finds the library and this machine in it."""
        return self._library.environment(self.description)

    @property
    def uuids(self) -> list[str]:
        """The GPUs by index."""
        return [gpu.uuid for gpu in self.topology.gpus]

    def say(self, statement: str) -> None:
        """Add a statement to the description, such as `fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST`."""
        with self.description.open("a") as file:
            file.write(f"{statement}\n")

    def repair(self) -> None:
        """Make the machine again what it was at first; nobody reads half of it."""
        new = self.description.with_suffix(".new")
        new.write_text(self._text)
        new.replace(self.description)

    def become(self, change: Callable[[str], str]) -> None:
        """Be another machine from now on, as `change` makes of the description; nobody looks at it meanwhile."""
        self._text = change(self._text)
        self.repair()
        self.topology = self._seen()

    def xid(self, gpu: int, number: int) -> None:
        """Let the driver report an XID error on a GPU to everybody who listens now."""
        with self.xids.open("a") as file:
            file.write(f"{gpu} {number}\n")

    def users(self) -> set[int]:
        """Return who has NVML open, and so the driver in use."""
        wanted, users = self._device.stat(), set()
        for opened in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):  # it was closed meanwhile, or is no file
                if os.path.samestat(opened.stat(), wanted):
                    users.add(int(opened.parts[2]))
        return users

    def _seen(self) -> NodeTopology:
        with self._library.loaded(self.description):
            return discover(read_nvml(), Host(self.description.parent / "no-sysfs")).topology


def write_numa(topology: NodeTopology, folder: Path, cpus: Sequence[int]) -> None:
    """Write what `/sys/devices/system/node` has on a machine with that many NUMA nodes; they share the CPUs out."""
    nodes = sorted({gpu.numa_node or 0 for gpu in topology.gpus}) or [0]
    folder.mkdir()
    for name in ("online", "possible", "has_cpu", "has_memory"):
        (folder / name).write_text(f"{','.join(map(str, nodes))}\n")
    for position, node in enumerate(nodes):
        own = cpus[position :: len(nodes)]
        entry = folder / f"node{node}"
        (entry / "hugepages" / "hugepages-2048kB").mkdir(parents=True)
        (entry / "hugepages" / "hugepages-2048kB" / "nr_hugepages").write_text("0\n")
        (entry / "meminfo").write_text(f"Node {node} MemTotal: {8 << 20} kB\n")
        (entry / "distance").write_text(" ".join("10" if other == node else "21" for other in nodes) + "\n")
        (entry / "cpulist").write_text(",".join(map(str, own)) + "\n")
        for cpu in own:
            (entry / f"cpu{cpu}").symlink_to(f"/sys/devices/system/cpu/cpu{cpu}")


def write_cpus(folder: Path, count: int) -> None:
    """Write what `/sys/devices/system/cpu` has on a machine with so many cores of one thread each."""
    for cpu in range(count):
        topology = folder / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{cpu}\n")
        (topology / "physical_package_id").write_text("0\n")
        (topology / "thread_siblings_list").write_text(f"{cpu}\n")
    (folder / "online").write_text(f"0-{count - 1}\n")


def write_pci(topology: NodeTopology, folder: Path) -> None:
    """Write which NUMA node each GPU's PCI function is near, where `/sys/bus/pci/devices` has it."""
    folder.mkdir()
    for gpu in topology.gpus:
        assert gpu.pci is not None, f"GPU {gpu.index} has a PCI address"
        function = folder / gpu.pci[4:].lower()
        function.mkdir()
        (function / "numa_node").write_text(f"{-1 if gpu.numa_node is None else gpu.numa_node}\n")


def write_capabilities(topology: NodeTopology, folder: Path) -> None:
    """Write what `/proc/driver` has of NVIDIA's driver: the device node of each MIG instance that there could be."""
    (folder / "nvidia-caps").mkdir(parents=True)
    paths = [
        f"gpu{gpu.index}/gi{instance}/{access}"
        for gpu in topology.gpus
        for instance in range(_MIG_INSTANCES)
        for access in ("access", *(f"ci{compute}/access" for compute in range(_MIG_INSTANCES)))
    ]
    lines = (f"{path} {minor}\n" for minor, path in enumerate(paths, 3))
    (folder / "nvidia-caps" / "mig-minors").write_text("".join(lines))


def write_cdi(topology: NodeTopology, folder: Path) -> None:
    """Write the CDI spec that NVIDIA's toolkit would: a device `nvidia.com/gpu=UUID` for each, with its device node.

    What is behind the node is `/dev/null`. Beside the devices there is a file in which each line joins two GPUs: `0 3 NV2`.
    """
    folder.mkdir()
    links = folder / "links"
    pairs = combinations(topology.gpus, 2)
    words = (topology.matrix[i][j] for i, j in combinations(range(len(topology)), 2))
    links.write_text("".join(f"{a.index} {b.index} {word}\n" for (a, b), word in zip(pairs, words, strict=True)))
    mount = {"hostPath": "/run/cdi/links", "containerPath": "/run/gputopo/links", "options": ["ro", "bind"]}
    devices = [
        {
            "name": gpu.uuid,
            "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{gpu.index}", "hostPath": "/dev/null"}]},
        }
        for gpu in topology.gpus
    ] + [
        {
            "name": each.uuid,
            "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia-cap{position}", "hostPath": "/dev/null"}]},
        }
        for position, each in enumerate(topology.slices)
    ]
    spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {"mounts": [mount]}}
    (folder / "nvidia.json").write_text(json.dumps(spec))
